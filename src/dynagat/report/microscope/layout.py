"""Where the atoms of a molecule are drawn: its skeleton, then its hydrogens around it.

The skeleton has RDKit's coordinates or, without RDKit, those that minimise the stress
Σ (|x_a - x_b| - d_ab)² / d_ab², d_ab the number of bonds between atoms a and b (SMACOF).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynagat.data.molecules import Molecule

STEPS = 300
APART = 2.0  # distance of parts that no bond connects, beyond the longest path
HYDROGEN = 0.62  # length of the bonds of hydrogen; others are about 1 long
TURN = 2 * np.pi

Bonds = Sequence[tuple[int, int, str]]


def has_rdkit() -> bool:
    try:
        import rdkit.Chem.rdDepictor  # noqa: F401
    except ImportError:
        return False
    return True


def layout(molecule: Molecule) -> np.ndarray:  # [n, 2], y downwards
    """The position of each atom, around (0, 0)."""
    home = _homes(molecule)
    inner = [atom for atom in range(len(molecule.elements)) if atom not in home]
    place = {atom: n for n, atom in enumerate(inner)}
    bonds = [(place[a], place[b], kind) for a, b, kind in molecule.bonds if {a, b} <= place.keys()]
    elements = [molecule.elements[atom] for atom in inner]
    at = np.zeros((len(molecule.elements), 2))
    skeleton = by_rdkit(elements, bonds) if has_rdkit() else by_stress(len(inner), bonds)
    lengths = [np.linalg.norm(skeleton[a] - skeleton[b]) for a, b, _ in bonds]
    at[inner] = skeleton / np.median(lengths or [1.0])
    for centre in set(home.values()):
        mine = [atom for atom in home if home[atom] == centre]
        others = [b if a == centre else a for a, b, _ in molecule.bonds if centre in (a, b)]
        near = [atom for atom in others if atom not in home]
        at[mine] = at[centre] + HYDROGEN * _around(at[near] - at[centre], len(mine))
    return at - (at.min(0) + at.max(0)) / 2


def _homes(molecule: Molecule) -> dict[int, int]:
    """The neighbour of each hydrogen that has only one, which is another element."""
    near: dict[int, list[int]] = {}
    for a, b, _ in molecule.bonds:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    return {
        atom: others[0]
        for atom, others in near.items()
        if molecule.elements[atom] == "H" and len(others) == 1
        and molecule.elements[others[0]] != "H"
    }  # fmt: skip


def _around(taken: np.ndarray, count: int) -> np.ndarray:  # [k, 2] -> [count, 2]
    """Directions at equal angles in the widest gap between the directions that are taken."""
    angles = np.sort(np.arctan2(taken[:, 1], taken[:, 0])) if len(taken) else np.array([np.pi / 2])
    gaps = np.diff(angles, append=angles[0] + TURN)
    widest = int(gaps.argmax())
    parts = count + 1 if len(taken) else count
    chosen = angles[widest] + gaps[widest] * np.arange(1, count + 1) / parts
    return np.stack([np.cos(chosen), np.sin(chosen)], 1)


def by_rdkit(elements: Sequence[str], bonds: Bonds) -> np.ndarray:
    """RDKit's 2D coordinates of the molecule as it is, without chemistry checks."""
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    drawn = Chem.RWMol()
    for element in elements:
        atom = Chem.Atom("*" if element == "?" else element)
        atom.SetNoImplicit(True)
        drawn.AddAtom(atom)
    for a, b, kind in bonds:
        drawn.AddBond(a, b, getattr(Chem.BondType, kind.upper()))
    drawn.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(drawn)
    rdDepictor.Compute2DCoords(drawn, canonOrient=True)
    return drawn.GetConformer().GetPositions()[:, :2] * (1, -1)


def by_stress(count: int, bonds: Bonds) -> np.ndarray:
    """The layout of least stress that is found from classical scaling."""
    distance = _paths(count, bonds)
    weight = np.where(np.eye(count), 0, 1 / np.maximum(distance, 1) ** 2)
    inverse = np.linalg.pinv(np.diag(weight.sum(1)) - weight)
    at = _scaling(distance)
    for _ in range(STEPS):
        gap = np.linalg.norm(at[:, None] - at, axis=-1)
        pull = weight * distance / np.maximum(gap, 1e-9)
        at = inverse @ (np.diag(pull.sum(1)) - pull) @ at
    return at


def _paths(count: int, bonds: Bonds) -> np.ndarray:  # [n, n]
    """The number of bonds between two atoms (Floyd and Warshall)."""
    distance = np.where(np.eye(count), 0, np.inf)
    for a, b, _ in bonds:
        distance[a, b] = distance[b, a] = 1
    for via in range(count):
        distance = np.minimum(distance, distance[:, via, None] + distance[via])
    return np.where(np.isinf(distance), distance[np.isfinite(distance)].max() + APART, distance)


def _scaling(distance: np.ndarray) -> np.ndarray:  # [n, 2]
    """Classical scaling, moved a little so that no two atoms coincide."""
    count = len(distance)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-centre @ distance**2 @ centre / 2)
    start = np.random.default_rng(0).normal(0, 0.05, (count, 2))
    axes = min(2, count)
    top = slice(-1, -1 - axes, -1)
    start[:, :axes] += vectors[:, top] * np.sqrt(np.maximum(values[top], 0))
    return start
