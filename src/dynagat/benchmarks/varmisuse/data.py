"""ProgramData: a stored set of programs as the data of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dynagat.benchmarks.varmisuse.stream import ProgramProblem
from dynagat.data.programs.chunks import make_compact
from dynagat.data.programs.layout import PARTS
from dynagat.data.programs.original import ORIGINAL
from dynagat.data.programs.stored import open_programs
from dynagat.data.programs.summary import find_programs

PAGE = "microsoft.com/download/details.aspx?id=56844"


@dataclass(frozen=True)
class ProgramData:
    """A set of programs in the graph store, or in a folder."""

    dataset: str = ORIGINAL
    chunks: int = 0  # of 100 graphs, the first so many of each part; 0: all

    def __post_init__(self) -> None:
        if self.chunks < 0:
            raise ValueError(f"chunks must not be negative, but is {self.chunks}")

    def load(self, seed: int) -> ProgramProblem:
        programs = open_programs(self.dataset)
        chunks = {part: programs.chunks(part)[: self.chunks or None] for part in PARTS}
        every = [path for paths in chunks.values() for path in paths]
        make_compact(every, programs.language, torch.get_num_threads())
        return ProgramProblem(chunks, programs.language)

    def missing(self) -> str | None:
        if find_programs(self.dataset) is not None:
            return None
        original = (
            f"download graph-dataset.zip from {PAGE}, unpack it, and run `dynagat data "
            f"import-programs graph-dataset --name {ORIGINAL}`; or "
        )
        python = (
            "`dynagat data import-python --name NAME` makes the same task from Python files, for "
            "--set dataset=NAME"
        )
        return (original if self.dataset == ORIGINAL else "") + python
