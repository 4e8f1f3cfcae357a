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
NUM_FEATURES = 15
NUMBER, CHARGE = 5, 6  # the columns of the atomic number and of the partial charge
# Of the elements, by atomic number; "?" where it is unknown.
SYMBOLS = (  # noqa: SIM905
    "? H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se "
    "Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy "
    "Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf "
    "Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og"
).split()


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


@dataclass(frozen=True)
class Molecule:
    """One molecule, for pictures."""

    name: str
    elements: tuple[str, ...]  # the symbol of each atom
    bonds: tuple[tuple[int, int, str], ...]  # two atoms and the type of their bond

    @property
    def types(self) -> set[str]:
        """The types of its bonds."""
        return {kind for _, _, kind in self.bonds}


def molecule_of(data: GraphData, graph: int) -> Molecule:
    """One molecule of a set, by its number."""
    graphs, bonds = data.nodes[GRAPH].arrays, data.edges[BOND]
    counts = (np.asarray(graphs[name]) for name in ("num_nodes", "num_edges"))
    atoms, mine = (slice(int(each[:graph].sum()), int(each[: graph + 1].sum())) for each in counts)
    numbers = np.asarray(data.nodes[NODE].arrays["x"])[atoms, NUMBER].astype(int)
    ends = ((each[mine] - atoms.start).tolist() for each in (bonds.key_index, bonds.query_index))
    types = (BOND_TYPES[kind - 1] for kind in np.asarray(bonds.arrays["type"])[mine])
    name = graphs["id"][graph]
    return Molecule(
        name if isinstance(name, str) else f"{data.name} {name}",
        tuple(SYMBOLS[number] for number in numbers),
        tuple(zip(*ends, types, strict=True)),
    )


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
