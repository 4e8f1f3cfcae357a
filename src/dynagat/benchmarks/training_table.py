"""The paper's table of training details on OGB's data sets, beside the values of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dynagat.benchmarks import BENCHMARKS
from dynagat.experiment import Benchmark
from dynagat.files import write_text
from dynagat.report import wording
from dynagat.report.markdown import table
from dynagat.report.parts import Table

SAINT, NEIGHBOURS, FULL = "GraphSAINT", "neighbour sampling", "full batch"
PRINTED = {  # layers, hidden size, learning rate, sampling
    "ogbn-arxiv": (3, 256, 0.01, SAINT),
    "ogbn-products": (3, 128, 0.001, NEIGHBOURS),
    "ogbn-mag": (2, 256, 0.01, NEIGHBOURS),
    "ogbn-proteins": (6, 64, 0.01, NEIGHBOURS),
    "ogbl-collab": (3, 64, 0.001, FULL),
    "ogbl-citation2": (3, 256, 0.0005, NEIGHBOURS),
}
SEARCHED = {"layers": (2, 3, 6), "dim": (64, 128, 256), "lr": (0.0005, 0.001, 0.005, 0.01)}
COLUMNS = (
    "dataset",
    "source",
    "layers",
    "hidden",
    "learning rate",
    "sampling",
    "epochs",
    "dropout",
)
START, END = "<!-- training: dynagat list --training -->", "<!-- /training -->"


def training_table() -> Table:
    """Two lines for each data set: as printed, and ours. The paper prints no epochs and dropout."""
    lines = []
    for name, printed in PRINTED.items():
        texts = [wording.setting_text(value) for value in printed]
        lines.append([name, "paper", *texts, wording.NOTHING, wording.NOTHING])
        lines.append([name, "ours", *_ours(BENCHMARKS[name])])
    lines.append(["searched", "paper", *_searched(SEARCHED), "all three", *[wording.NOTHING] * 2])
    for name, grid in _grids():
        lines.append(
            ["searched", f"ours, {name}", *_searched(grid), "fixed", *[wording.NOTHING] * 2]
        )
    return Table.of("Training details", COLUMNS, lines, text_columns=2)


def differences() -> list[str]:
    """The data sets whose layers, hidden size, learning rate or sampling is not the printed one."""
    return [name for name, printed in PRINTED.items() if _values(BENCHMARKS[name]) != printed]


def write_training(path: Path) -> None:
    """Replace what stands between the two marks in a file."""
    text = path.read_text()
    if text.count(START) != 1 or text.count(END) != 1 or text.index(END) < text.index(START):
        raise ValueError(f"{path} must have the line {START} once, and {END} once after it")
    before, after = text.partition(START)[0], text.partition(END)[2]
    write_text(path, f"{before}{START}\n\n{table(training_table())}\n{END}{after}")


def _values(benchmark: Benchmark) -> tuple[int, int, float, str]:
    network: Any = benchmark.network
    return network.layers, network.dim, benchmark.schedule.lr, _sampling(benchmark)


def _sampling(benchmark: Benchmark) -> str:
    task: Any = benchmark.task
    if getattr(task, "roots", 0):
        return SAINT
    return NEIGHBOURS if task.neighbours else FULL


def _ours(benchmark: Benchmark) -> Iterator[str]:
    task: Any = benchmark.task
    layers, dim, lr, sampling = _values(benchmark)
    details = {
        SAINT: lambda: f"{task.steps} times {task.roots:,} walks of {task.walk_length} steps",
        NEIGHBOURS: lambda: (
            f"{wording.setting_text(task.neighbours).replace(',', ', ')} neighbours"
        ),
        FULL: lambda: f"{benchmark.schedule.batch_size:,} links a step",
    }
    yield from map(wording.setting_text, (layers, dim, lr))
    yield f"{sampling}: {details[sampling]()}"
    yield f"at most {benchmark.schedule.round_passes * benchmark.schedule.max_rounds:,}"
    network: Any = benchmark.network
    yield wording.setting_text(network.dropout)


def _searched(grid: Any) -> list[str]:
    return [wording.setting_text(grid[name]).replace(",", ", ") for name in SEARCHED]


def _grids() -> Iterator[tuple[str, Any]]:
    """The benchmarks' grids; those that are equal share a line."""
    by_text: dict[str, tuple[list[str], Any]] = {}
    for name in PRINTED:
        grid = BENCHMARKS[name].search
        by_text.setdefault("|".join(_searched(grid)), ([], grid))[0].append(name)
    for names, grid in by_text.values():
        yield ("all" if len(names) == len(PRINTED) else wording.listed(names)), grid
