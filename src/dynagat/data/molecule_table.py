"""read_molecules: a table with a column of SMILES, CSV or Parquet, as one GraphData.

Rows whose SMILES can't be used, and rows without a target, are left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dynagat.data.assumptions import MAX_NAMED
from dynagat.data.molecules import molecules
from dynagat.data.smiles import SmilesError, read_smiles
from dynagat.data.store import GraphData
from dynagat.data.tables.cells import as_text, compute
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.read import SPLIT, name_of
from dynagat.data.tables.split import check_shares, split_at_random, split_by_column
from dynagat.data.tables.table_file import TableFile
from dynagat.data.tables.targets import Coding, read_target
from dynagat.data.texts import Texts

TASKS = ("auto", "classification", "regression")


def read_molecules(
    table: Path | str,
    *,
    smiles: str,
    target: str | None = None,
    task: str = "auto",
    split: str | None = None,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    name: str | None = None,
) -> GraphData:
    """The molecules of a table: atoms are nodes, hydrogens too, and bonds are edges.

    Args:
        table: a file with a line per molecule, CSV (also compressed by gzip) or Parquet.
        smiles: the column of the molecules.
        target: the column to predict; None if there is none.
        task: "classification" or "regression"; "auto" infers it from the target: text, or a few
            distinct integers, are classes.
        split: the column of train, valid and test; by default the one named split. Without it, the
            molecules are split at random.
        shares, seed: fractions and seed of the random split, which is stratified by class.
        name: of the graph; by default that of the file.

    Raises:
        TableError: with the file, line and value of the first problem.
    """
    if task not in TASKS:
        raise ValueError(f"task of molecules must be one of {', '.join(TASKS)}, but is {task!r}")
    check_shares(shares)
    file = TableFile.open(table)
    reader = _Reader.of(file, smiles, target, split)
    reader.read()
    about: dict[str, Any] = {"smiles": smiles, "rows": reader.rows}
    about |= {"skipped": reader.rows - len(reader.texts), "first_skipped": reader.errors}
    common = {"name": name or name_of(file.path), "source": file.path.name, "molecules": about}
    if reader.target is None:
        return molecules(**reader.arrays(), y=None, split={}, task={}, **common)
    targets = read_target([reader.target.finish()], task)
    if reader.part is not None:
        parts, how = split_by_column(reader.part.finish(), targets), {"split": reader.part.name}
    else:
        parts = split_at_random(targets, shares, seed)
        how = {"shares": list(shares), "seed": seed}
    training = np.zeros(reader.rows, bool)
    training[parts["train"]] = True
    targets.check_training(training)
    labelled = targets.labelled
    about |= {"target": target, "unlabelled": len(reader.texts) - int(labelled.sum()), **how}
    place = np.cumsum(labelled) - 1  # of a row among the labelled ones
    return molecules(
        **reader.arrays(labelled),
        y=targets.y[labelled],
        split={part: place[rows] for part, rows in parts.items()},
        task=targets.metadata,
        **common,
    )


def molecules_of(smiles: Sequence[str]) -> GraphData:
    """The molecules of a list of SMILES; a ValueError if one can't be used."""
    each = []
    for n, text in enumerate(smiles):
        try:
            each.append(read_smiles(text))
        except SmilesError as error:
            raise ValueError(
                f"smiles[{n}] is {shown(text)}, which can't be used: {error}"
            ) from None
    if not each:
        raise ValueError("smiles must hold at least one molecule, but is empty")
    arrays = _arrays([(atoms.features(), bonds) for atoms, bonds in each], smiles)
    about = {"smiles": None, "rows": len(each), "skipped": 0, "first_skipped": []}
    return molecules(
        "molecules", **arrays, y=None, split={}, task={}, source="a list of SMILES", molecules=about
    )


def _arrays(
    graphs: Sequence[tuple[np.ndarray, np.ndarray]], texts: Sequence[str]
) -> dict[str, Any]:
    """Arguments of `molecules`, from the features and the bonds of each."""
    features, bonds = zip(*graphs, strict=True)
    return {
        "x": np.concatenate(features),
        "num_atoms": np.array([len(each) for each in features]),
        "bonds": np.concatenate(bonds),
        "num_bonds": np.array([len(each) for each in bonds]),
        "ids": Texts.of(texts),
    }


@dataclass
class _Reader:
    """Reads a table once. A row that is skipped counts as one without a target."""

    file: TableFile
    column: str
    target: Coding | None
    part: Coding | None
    rows: int = 0
    readable: list[int] = field(default_factory=list)  # rows
    texts: list[str] = field(default_factory=list)  # of the readable rows
    graphs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # features, bonds
    errors: list[str] = field(default_factory=list)  # the first ones

    @classmethod
    def of(cls, file: TableFile, smiles: str, target: str | None, split: str | None) -> _Reader:
        file.check_columns([each for each in (smiles, target, split) if each is not None])
        by_lower = {name.lower(): name for name in reversed(file.names)}
        usual = by_lower.get(SPLIT)
        split = split or (usual if usual not in (smiles, target) else None)
        roles = [each for each in (smiles, target, split) if each is not None]
        for name in roles:
            if roles.count(name) > 1:
                raise ValueError(f"column {name!r} can be only one of smiles, target and split")
        if target is None:
            return cls(file, smiles, None, None)
        return cls(file, smiles, Coding(file, target), Coding(file, split) if split else None)

    def read(self) -> None:
        codings = [each for each in (self.target, self.part) if each is not None]
        for first, block in self.file.blocks([self.column, *(each.name for each in codings)]):
            cells = as_text(block.column(self.column)).to_pylist()
            kept = pa.array([self._add(text, first + n) for n, text in enumerate(cells)])
            for coding in codings:
                text = as_text(block.column(coding.name))
                coding.add(compute.if_else(kept, text, pa.scalar(None, pa.string())))
            self.rows += len(cells)
        if not self.rows:
            raise TableError(f"{self.file.path} has a header, but no rows")
        if not self.texts:
            place = f"{self.file.path}: column {self.column!r}"
            raise TableError(f"{place} holds no molecule that can be read, as in {self.errors[0]}")

    def _add(self, text: str | None, row: int) -> bool:
        """Whether the cell holds a molecule."""
        try:
            if text is None:
                raise SmilesError("it is empty")
            atoms, bonds = read_smiles(text)
        except SmilesError as error:
            if len(self.errors) < MAX_NAMED:
                place = self.file.locate(row).removeprefix(f"{self.file.path}, ")
                self.errors.append(
                    f"{place} ({error})" if text is None else f"{place} ({shown(text)}: {error})"
                )
            return False
        self.readable.append(row)
        self.texts.append(text)
        self.graphs.append((atoms.features(), bonds))
        return True

    def arrays(self, kept: np.ndarray | None = None) -> dict[str, Any]:
        """Arguments of `molecules`; of the rows where kept [rows] is true."""
        chosen = [n for n, row in enumerate(self.readable) if kept is None or kept[row]]
        return _arrays([self.graphs[n] for n in chosen], [self.texts[n] for n in chosen])
