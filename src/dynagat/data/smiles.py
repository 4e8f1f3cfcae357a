"""SMILES as molecules: atoms with the features of data/molecules.py, and bonds; by RDKit.

Hydrogens are explicit, as in QM9. The definitions below reproduce the published features in all
9,139 of QM9's 10,000 test molecules whose published graph has usual valences; the graphs of the
others lack a double bond that a SMILES has. A SMILES holds no partial charges: their column is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from dynagat.data.molecules import Atoms

# Fluorine; nitrogen of valence 3 except ammonia; oxygen of valence 2; O-; in aromatic rings any.
ACCEPTOR = "[F,n,o,$([O;v2]),$([O;-]),$([N;v3;!H3])]"
DONOR = "[$([N;!H0;v3]),$([N;!H0;v4;+]),$([n;!H0]),$([O;H1])]"  # N and O with a hydrogen
BONDS = {"SINGLE": 1, "DOUBLE": 2, "TRIPLE": 3, "AROMATIC": 4}  # as BOND_TYPES
HYBRIDS = {"SP": 1, "SP2": 2, "SP3": 3}  # others are 0


class SmilesError(ValueError):
    """A text that is no SMILES of a molecule with these kinds of bonds."""


def read_smiles(text: str) -> tuple[Atoms, np.ndarray]:
    """Atoms of a SMILES with explicit hydrogens; bonds [E, 3] of (first atom, type, second atom).

    Raises:
        SmilesError: if RDKit rejects it, or it has no atoms, unknown atoms or other bonds.
    """
    chem = _rdkit()
    with _silent():
        parsed = chem.MolFromSmiles(text)
        if parsed is None:
            raise SmilesError("RDKit can't read it")
        whole = chem.AddHs(parsed)
    atoms = list(whole.GetAtoms())
    if not atoms:
        raise SmilesError("it has no atoms")
    numbers = np.array([atom.GetAtomicNum() for atom in atoms])
    if not numbers.all():
        raise SmilesError("it has an atom * of no element")
    return _atoms(whole, atoms, numbers), _bonds(whole)


def _atoms(whole: Any, atoms: list[Any], numbers: np.ndarray) -> Atoms:
    def column(values: Any) -> np.ndarray:
        return np.array(list(values), np.int64)

    return Atoms(
        number=numbers,
        charge=np.zeros(len(atoms)),
        is_acceptor=_matches(whole, ACCEPTOR),
        is_donor=_matches(whole, DONOR),
        is_aromatic=column(atom.GetIsAromatic() for atom in atoms),
        hybrid=column(HYBRIDS.get(atom.GetHybridization().name, 0) for atom in atoms),
        hydrogens=column(atom.GetTotalNumHs(includeNeighbors=True) for atom in atoms),
    )


def _matches(whole: Any, pattern: str) -> np.ndarray:
    """[N] bool: which atoms match a pattern of one atom."""
    count = whole.GetNumAtoms()
    is_match = np.zeros(count, bool)
    for (atom,) in whole.GetSubstructMatches(_pattern(pattern), maxMatches=count):
        is_match[atom] = True
    return is_match


def _bonds(whole: Any) -> np.ndarray:
    """Each once, the lower atom first."""
    rows = []
    for bond in whole.GetBonds():
        kind = bond.GetBondType().name
        if kind not in BONDS:
            raise SmilesError(f"it has a bond of type {kind.lower()}")
        first, second = sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        rows.append((first, BONDS[kind], second))
    return np.array(rows, np.int64).reshape(-1, 3)


@cache
def _pattern(text: str) -> Any:
    return _rdkit().MolFromSmarts(text)


@contextmanager
def _silent() -> Iterator[None]:
    """RDKit's own messages are not shown."""
    from rdkit import rdBase

    with rdBase.BlockLogs():
        yield


@cache
def _rdkit() -> Any:
    try:
        from rdkit import Chem
    except ModuleNotFoundError:
        message = "reading SMILES needs rdkit; pip install 'dynagat[chem]' installs it"
        raise ValueError(message) from None
    return Chem
