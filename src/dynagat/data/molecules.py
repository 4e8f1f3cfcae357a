"""Molecules as graphs: atoms are nodes, bonds are edges with a type.

A set of molecules is one GraphData. Its nodes are of two types: the atoms of all molecules, one
molecule after the other, and the molecules, which have the targets and the split.

    node   x [N, 15]: one-hot H, C, N, O, F; atomic number; partial charge; acceptor and donor of
           hydrogen bonds; aromatic; one-hot sp, sp2, sp3, none; number of hydrogens
    graph  y [G] or [G, T], num_nodes [G], num_edges [G], id [G]
    edges  each bond once, with its type [E]: 1 single, 2 double, 3 triple, 4 aromatic
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagat.data.arrays import Array
from dynagat.data.store import NODE, Edges, GraphData, Nodes

GRAPH = "graph"  # type of the nodes that stand for whole graphs
BOND = (NODE, "bond", NODE)
BOND_TYPES = ("single", "double", "triple", "aromatic")  # types 1 to 4
ELEMENTS = {1: "H", 6: "C", 7: "N", 8: "O", 9: "F"}
MORE_ELEMENTS = {5: "B", 14: "Si", 15: "P", 16: "S", 17: "Cl", 34: "Se", 35: "Br", 53: "I"}
SYMBOLS = ELEMENTS | MORE_ELEMENTS
HYBRIDS = 4  # sp, sp2, sp3, none
NUM_FEATURES = 15
NUMBER, CHARGE = 5, 6  # the columns of the atomic number and the partial charge


@dataclass(frozen=True, eq=False)
class Atoms:
    """What is known about each of N atoms."""

    number: np.ndarray  # [N]: atomic number
    charge: np.ndarray  # [N]: partial charge
    is_acceptor: np.ndarray
    is_donor: np.ndarray
    is_aromatic: np.ndarray
    hybrid: np.ndarray  # 0 none, 1 sp, 2 sp2, 3 sp3
    hydrogens: np.ndarray  # number of attached hydrogens

    def features(self) -> np.ndarray:
        """[N, 15] float32, as listed above."""
        one_hot = self.number[:, None] == np.array(list(ELEMENTS))
        flags = (self.is_acceptor, self.is_donor, self.is_aromatic)
        hybrid = self.hybrid[:, None] == np.array([1, 2, 3, 0])
        columns = [one_hot, self.number, self.charge, *flags, hybrid, self.hydrogens]
        return np.column_stack(columns).astype(np.float32)


def molecules(
    name: str,
    x: np.ndarray,
    num_atoms: np.ndarray,
    bonds: np.ndarray,
    num_bonds: np.ndarray,
    y: np.ndarray | None,
    ids: Array,
    split: Mapping[str, np.ndarray],
    task: Mapping[str, Any],
    source: str,
    **about: Any,
) -> GraphData:
    """One value of all molecules.

    Args:
        x: [N, 15], features of the atoms of all molecules.
        num_atoms: [G], of each molecule.
        bonds: [E, 3], of (first atom, type, second atom), numbered within the molecule.
        num_bonds: [G], of each molecule.
        y: [G] or [G, T], targets; None if there are none.
        ids: [G], of the molecules in their source.
        task: what is predicted, as in GraphData; empty without targets.
    """
    sizes, counts = num_atoms.astype(np.int64), num_bonds.astype(np.int64)
    first_atom = np.repeat(np.cumsum(sizes) - sizes, counts)
    ends = (bonds[:, [0, 2]] + first_atom[:, None]).astype(np.int32)
    graphs: dict[str, Array] = {"num_nodes": sizes, "num_edges": counts, "id": ids}
    graphs |= {} if y is None else {"y": y}
    return GraphData(
        name,
        {NODE: Nodes(len(x), {"x": x}), GRAPH: Nodes(len(sizes), graphs)},
        {BOND: Edges(ends[:, 0], ends[:, 1], {"type": bonds[:, 1].astype(np.uint8)})},
        split,
        {"task": {**task, "node_type": GRAPH}, "source": source, **about},
    )
