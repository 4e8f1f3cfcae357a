"""What the report adds for DictionaryLookup: Figures 1 and 3, the GIN figure, and the explorer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dynagat.benchmarks.dictionary_lookup.explorer import explorer
from dynagat.benchmarks.dictionary_lookup.figures import figure_1, figure_3, gin_figure
from dynagat.report.findings import Findings
from dynagat.report.parts import Extras, Figure, Widget

CAPTIONS = {
    figure_1: "Figure 1. How much each query (row) attends to each key (column) in one test graph,"
    " and the same rows as lines: in GAT they all peak at the same key.",
    figure_3: "Figure 3. Accuracy as the dictionary grows. Lines are means over seeds, bands one"
    " standard deviation; hollow markers are the paper's.",
    gin_figure: "The appendix's figure of GIN, which has no attention, next to GATv2.",
}
IMPROVED = {
    figure_3: "Figure 3 with our improvements F1 and F2 for all mechanisms, which the paper does"
    " not have.",
    gin_figure: "The figure of GIN with our improvements F1 and F2.",
}


def extras(findings: Findings) -> Extras:
    def draw_all() -> Iterator[Figure | Widget]:
        yield explorer(findings)
        for draw, caption in CAPTIONS.items():
            svg = draw(findings)
            if svg is not None:
                yield Figure(_name(draw), svg, caption, is_wide=draw is figure_1)
        for draw, caption in IMPROVED.items():
            svg = draw(findings, improved=True)
            if svg is not None:
                yield Figure(f"{_name(draw)}-improved", svg, caption)

    return Extras(draw_all)


def _name(draw: Callable[..., str | None]) -> str:
    return draw.__name__.replace("_", "-")
