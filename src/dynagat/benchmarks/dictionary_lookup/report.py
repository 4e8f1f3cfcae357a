"""What the report adds for DictionaryLookup: figures, the explorer, the fit, the trend, claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dynagat.benchmarks.dictionary_lookup.attention import (
    attention_table,
    figure_1,
    figure_1_paper,
)
from dynagat.benchmarks.dictionary_lookup.claims import CLAIMS, judge
from dynagat.benchmarks.dictionary_lookup.explorer import explorer
from dynagat.benchmarks.dictionary_lookup.figures import figure_3, gin_figure
from dynagat.benchmarks.dictionary_lookup.fit import fits
from dynagat.benchmarks.dictionary_lookup.problem import figure_2
from dynagat.benchmarks.dictionary_lookup.trend import trend_table
from dynagat.report.findings import Findings
from dynagat.report.parts import Extras, Figure, Widget

ATTENTION = (
    "Figure 1. How much each query (row) attends to each key (column) in one test graph, and the"
    " same rows as lines: in GAT they all peak at the same key."
)
PRINTED = (
    "The paper's Figure 1: the attention values that are printed there, drawn in the same way. Its"
    " GATv2 is the released one on the third test graph of seed 11."
)
PROBLEM = (
    "Figure 2. The problem with k = 4: a key (below) has an attribute, a letter, and a value, a"
    " number; a query (above) has an attribute only and attends to all keys. It must find the key"
    " with its own attribute (thick edges) and predict that key's value (above the query)."
)
CUT = " A cross marks a mean with runs that were cut off: it counts as a win for no mechanism."
CAPTIONS = {
    figure_3: "Figure 3. Accuracy as the dictionary grows. Lines are means over seeds, bands one"
    f" standard deviation; hollow markers are the paper's.{CUT}",
    gin_figure: f"The appendix's figure of GIN, which has no attention, next to GATv2.{CUT}",
}
IMPROVED = {
    figure_3: "Figure 3 with our improvements F1 and F2 for all mechanisms, which the paper does"
    f" not have.{CUT}",
    gin_figure: f"The figure of GIN with our improvements F1 and F2.{CUT}",
}


def extras(findings: Findings) -> Extras:
    def draw_all() -> Iterator[Figure | Widget]:
        yield explorer(findings)
        svg = figure_1(findings)
        if svg is not None:
            yield Figure("figure-1", svg, ATTENTION, is_wide=True)
            yield Figure("figure-1-paper", figure_1_paper(), PRINTED, is_wide=True)
        yield Figure("figure-2", figure_2(), PROBLEM)
        for draw, caption in CAPTIONS.items():
            svg = draw(findings)
            if svg is not None:
                yield Figure(_name(draw), svg, caption)
        for draw, caption in IMPROVED.items():
            svg = draw(findings, improved=True)
            if svg is not None:
                yield Figure(f"{_name(draw)}-improved", svg, caption)

    tables = (attention_table(findings), trend_table(findings))
    return Extras(draw_all, tuple(table for table in tables if table), fits, judge, CLAIMS)


def _name(draw: Callable[..., str | None]) -> str:
    return draw.__name__.replace("_", "-")
