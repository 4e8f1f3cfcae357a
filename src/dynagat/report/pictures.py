"""pictures: the figures of a benchmark that its records give, and what is said below them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dynagat.benchmarks.dictionary_lookup import DICTIONARY_LOOKUP
from dynagat.benchmarks.edge_noise import EDGE_NOISE
from dynagat.experiment import Benchmark, Record
from dynagat.report.figures import figure_1, figure_3, gin_figure
from dynagat.report.noise_figures import figure_4, figure_4_words, noise_figure, noise_figure_words


@dataclass(frozen=True)
class Picture:
    name: str  # of its file, without the ending
    svg: str
    words: str
    wide: bool = False  # its numbers need room: it scrolls on a phone


Draw = Callable[[list[Record]], "str | None"]
Words = Callable[[list[Record]], str]

FIGURES: dict[str, tuple[tuple[Draw, str | Words], ...]] = {
    DICTIONARY_LOOKUP.name: (
        (
            figure_1,
            "Figure 1. How much each query (row) attends to each key (column) in one test graph,"
            " and the same rows as lines: in GAT they all peak at the same key.",
        ),
        (
            figure_3,
            "Figure 3. Accuracy as the dictionary grows. Lines are means over seeds, bands one"
            " standard deviation; hollow markers are the paper's.",
        ),
        (
            gin_figure,
            "The appendix's figure of GIN, which attends to nothing, beside GATv2.",
        ),
    ),
    EDGE_NOISE.name: ((figure_4, figure_4_words), (noise_figure, noise_figure_words)),
}


def pictures(records: list[Record], benchmark: Benchmark) -> list[Picture]:
    found = []
    for draw, words in FIGURES.get(benchmark.name, ()):
        svg = draw(records)
        if svg is not None:
            name = draw.__name__.replace("_", "-")
            told = words if isinstance(words, str) else words(records)
            found.append(Picture(name, svg, told, wide=draw is figure_1))
    return found
