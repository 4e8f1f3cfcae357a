"""The table of nodes: ids, targets, split and features, in three passes over the file.

The first pass reads ids, targets and split, and finds the kind of each column; the second fits the
encoding of columns to the training rows; the third writes the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dynagat.data.tables.columns import Columns
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.destination import NODE_BASE, SPLIT_BASE, Destination
from dynagat.data.tables.fitting import fit_columns
from dynagat.data.tables.ids import Ids, first_empty, read_names
from dynagat.data.tables.kinds import Tally, count_cells, kinds_of_columns
from dynagat.data.tables.lookalikes import Lookalike
from dynagat.data.tables.split import Split, split_at_random, split_by_column
from dynagat.data.tables.table_file import TableFile
from dynagat.data.tables.targets import Coded, Coding, Target, read_target


@dataclass(frozen=True)
class NodeColumns:
    """The roles of the columns in the table of nodes."""

    id: str
    targets: tuple[str, ...]
    split: str | None
    features: tuple[str, ...]


@dataclass(frozen=True)
class Choices:
    """Options for the target and the split."""

    task: str
    shares: Sequence[float]
    seed: int


@dataclass
class NodeReader:
    """Reads the table of nodes into a destination."""

    file: TableFile
    roles: NodeColumns
    choices: Choices
    destination: Destination

    def write(self, columns: Columns | None) -> tuple[Ids, dict[str, Any]]:
        """Write all arrays of the nodes; returns their ids and the metadata."""
        names = () if columns else self.roles.features
        tallies, lookalikes = {name: Tally() for name in names}, [*map(Lookalike, names)]
        ids, target, parts = self._first_pass(tallies, lookalikes)
        training = np.ones(len(ids), bool)
        if target is not None:
            training = self._write_target(target, parts)
        if columns is None:
            kinds = kinds_of_columns(self.file, tallies)
            for lookalike in lookalikes:
                lookalike.check(self.file)
            columns = fit_columns(self.file, kinds, training)
        if columns.features:  # else the graph has no x
            self._write_features(columns, len(ids))
        self.destination.add(f"{NODE_BASE}/id", ids.array)
        return ids, self._metadata(ids, target, parts, columns)

    def _first_pass(
        self, tallies: dict[str, Tally], lookalikes: list[Lookalike]
    ) -> tuple[Ids, Target | None, Coded | None]:
        """Read ids, target and split, and count the kinds of cells."""
        roles, names = self.roles, []
        codings = [Coding(self.file, name) for name in roles.targets]
        parts = [Coding(self.file, roles.split)] if roles.split and roles.targets else []
        wanted = [roles.id, *roles.targets, *(each.name for each in parts), *tallies]
        for first, block in self.file.blocks(wanted):
            cells = block.column(roles.id)
            self._check_ids(cells, first)
            names.append(read_names(cells))
            for coding in [*codings, *parts]:
                coding.add(block.column(coding.name))
            count_cells(tallies, block, first)
            for lookalike in lookalikes:
                lookalike.add(block.column(lookalike.name), first)
        if not names:
            raise TableError(f"{self.file.path} has a header, but no rows")
        ids = Ids.of(names)
        ids.check(self.file, roles.id)
        coded = [coding.finish() for coding in codings]
        target = read_target(coded, self.choices.task) if coded else None
        return ids, target, parts[0].finish() if parts else None

    def _check_ids(self, cells: pa.Array, first: int) -> None:
        row = first_empty(cells)
        if row is not None:
            place = self.file.locate(first + row)
            raise TableError(
                f"{place}: column {self.roles.id!r} is empty, but must hold the id of the node"
            )

    def _write_target(self, target: Target, parts: Coded | None) -> np.ndarray:
        """Write y and the split; returns a mask of the training rows."""
        split = self._split(target, parts)
        training = np.zeros(len(target.y), bool)
        training[split["train"]] = True
        target.check_training(training)
        self.destination.add(f"{NODE_BASE}/y", target.y)
        for part, index in split.items():
            self.destination.add(f"{SPLIT_BASE}/{part}", index)
        return training

    def _split(self, target: Target, parts: Coded | None) -> Split:
        if parts is not None:
            return split_by_column(parts, target)
        return split_at_random(target, self.choices.shares, self.choices.seed)

    def _write_features(self, columns: Columns, count: int) -> None:
        features = self.destination.grow(f"{NODE_BASE}/x", np.float32, (len(columns.features),))
        rows, unknown = 0, {each.name: each for each in columns.columns if each.values}
        for first, block in self.file.blocks(columns.names):
            features.append(columns.encode(block, self.file.locate_from(first)))
            rows += block.num_rows
            unknown = {n: each for n, each in unknown.items() if not each.knows(block.column(n))}
        for name, column in unknown.items():
            raise TableError(
                f"{self.file.path}: column {name!r} must hold categories such as "
                f"{shown(column.values[0])}, but none of its values occurred in training"
            )
        if rows != count:
            raise TableError(f"{self.file.path} was changed while it was read")

    def _metadata(
        self, ids: Ids, target: Target | None, parts: Coded | None, columns: Columns
    ) -> dict[str, Any]:
        tables: dict[str, Any] = {"id": self.roles.id, "nodes": len(ids)}
        tables |= {"target": list(self.roles.targets), "split": parts.name if parts else None}
        about: dict[str, Any] = {"columns": columns.to_dict(), "tables": tables}
        if target is not None:
            tables["unlabelled"] = int(np.count_nonzero(~target.labelled))
            if parts is None:
                tables |= {"shares": list(self.choices.shares), "seed": self.choices.seed}
            about["task"] = target.metadata
        return about
