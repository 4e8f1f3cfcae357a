"""QM9: 130,000 small organic molecules with 13 computed properties, each with its graph of bonds.

Two layouts are read: the files of tf-gnn-samples, a gzipped JSON object per line and molecule in
train.jsonl.gz, valid.jsonl.gz and test.jsonl.gz; and qm9_graphs.npz, plain arrays of all molecules.
Targets are normalised: see `benchmarks/qm9`.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.molecules import BOND_TYPES, NUM_FEATURES, SYMBOLS, Atoms, molecules
from dynagat.data.store import SPLITS, GraphData
from dynagat.npz_file import read_arrays

TARGETS = ("mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u", "h", "g", "cv", "omega")
COMPACT = "qm9_graphs.npz"
SOURCE = "QM9, Ramakrishnan et al. 2014"
TASK = {"kind": "regression", "target": ", ".join(TARGETS), "targets": list(TARGETS)}
SCALE = 1e-6  # of the charges in the compact file
MAX_DIGITS = 18  # of the number of a molecule, which must fit into an int64
MAX_COUNT = 2**31 - 1
SHOWN = 40  # characters of an id in an error message
COUNTS = {  # of the compact file: integers, what each is of, and the values that it may have
    "qm9_index": ("molecule", 0, 10**MAX_DIGITS),
    "split": ("molecule", 0, len(SPLITS) - 1),
    "num_atoms": ("molecule", 1, MAX_COUNT),
    "num_bonds": ("molecule", 0, MAX_COUNT),
    "atomic_number": ("atom", 1, len(SYMBOLS) - 1),
    "bond_src": ("bond", 0, MAX_COUNT),
    "bond_dst": ("bond", 0, MAX_COUNT),
    "bond_type": ("bond", 0, MAX_COUNT),
    "atom_flags": ("atom", 0, (1, 1, 1, 3, 4)),
}
COLUMNS = {"atom_flags": 5, "targets": len(TARGETS)}  # of the arrays that have columns
NUMBERS = {"mulliken_charge_1e6": "atom", "targets": "molecule"}  # that needn't be integers


def read_qm9(folder: Path | str, name: str = "qm9") -> GraphData:
    """The molecules of a folder; of the compact file if it is there."""
    folder = Path(folder)
    if (folder / COMPACT).is_file():
        return read_compact(folder / COMPACT, name)
    return read_jsonl(folder, name)


def read_jsonl(folder: Path | str, name: str = "qm9", parts: tuple[str, ...] = SPLITS) -> GraphData:
    """The molecules of PART.jsonl.gz for each part of the split."""
    folder = Path(folder)
    x, bonds, y, ids, counts, split = [], [], [], [], [], {}
    for part in parts:
        path, first = folder / f"{part}.jsonl.gz", len(y)
        if not path.is_file():
            raise ValueError(f"{path} is missing; QM9 is {COMPACT}, or a file for each of {parts}")
        for features, edges, targets, number in _molecules(path):
            x.append(features)
            bonds.append(edges)
            y.append(targets)
            ids.append(number)
            counts.append((len(features), len(edges)))
        split[part] = np.arange(first, len(y))
    sizes = np.array(counts, np.int64).reshape(-1, 2)
    return molecules(
        name,
        np.concatenate(x),
        sizes[:, 0],
        np.concatenate(bonds),
        sizes[:, 1],
        np.array(y, np.float32),
        np.array(ids),
        split,
        TASK,
        f"{SOURCE}; files of tf-gnn-samples",
    )


def _molecules(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """Features [n, 15], bonds [e, 3], targets [13] and number of each molecule of a file."""
    is_empty = True
    for line, text in _lines(path):
        is_empty = False
        try:
            yield _molecule(_parse(text))
        except _BadMolecule as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
    if is_empty:
        raise ValueError(f"{path} holds no molecule")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    line = 0
    try:
        with gzip.open(path) as file:
            for line, text in enumerate(file, 1):
                yield line, text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} was cut short or altered after line {line}: {error}") from None


class _BadMolecule(ValueError):
    pass


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _BadMolecule(f"this is no JSON: {error}") from None
    except UnicodeDecodeError as error:
        at, byte = error.start, text[error.start]
        raise _BadMolecule(f"this is no UTF-8 text, byte {at + 1} is {byte:#04x}") from None
    except RecursionError:
        raise _BadMolecule("this JSON is nested too deeply") from None
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise _BadMolecule(f"this JSON has a number that can't be read: {error}") from None


def _molecule(record: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    if not isinstance(record, dict):
        raise _BadMolecule(f"a molecule must be a JSON object, but is a {type(record).__name__}")
    for key in ("targets", "graph", "node_features", "id"):
        if key not in record:
            raise _BadMolecule(f"the molecule has no {key!r}")
    x = _numbers(record, "node_features", np.float32, NUM_FEATURES)
    y = _numbers(record, "targets", np.float32, 1)
    bonds = _numbers(record, "graph", np.int64, 3)
    if not len(x):
        raise _BadMolecule("the molecule has no atoms")
    if len(y) != len(TARGETS):
        raise _BadMolecule(f"targets must have {len(TARGETS)} entries, but have {len(y)}")
    _check_bonds(bonds, len(x))
    return x, bonds, y[:, 0], _id(record["id"])


def _id(name: Any) -> int:
    """ "qm9:000123" -> 123"""
    number = str(name).rpartition(":")[2]
    if not number.isdecimal() or len(number) > MAX_DIGITS:
        text = str(name)
        shown = repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
        raise _BadMolecule(f"id must be like 'qm9:000123', but is {shown}")
    return int(number)


def _numbers(record: dict[str, Any], key: str, dtype: Any, width: int) -> np.ndarray:
    """A list of rows as an array [n, width] of finite numbers."""
    rows = record[key]
    if rows == []:
        return np.empty((0, width), dtype)
    try:
        values = np.array(rows, np.float64).reshape(len(rows), -1)
    except (TypeError, ValueError, OverflowError):
        raise _BadMolecule(f"{key} must be a list of equally long lists of numbers") from None
    if values.shape[1] != width:
        raise _BadMolecule(f"{key} must have {width} numbers per row, but has {values.shape[1]}")
    is_float = np.issubdtype(dtype, np.floating)
    with np.errstate(over="ignore"):
        values = values.astype(dtype) if is_float else values
    if not np.isfinite(values).all():
        raise _BadMolecule(f"{key} must hold finite numbers, but one is missing or not finite")
    if is_float:
        return values
    if (values != np.rint(values)).any():
        raise _BadMolecule(f"{key} must hold whole numbers")
    return values.clip(-MAX_COUNT, MAX_COUNT).astype(dtype)


def _check_bonds(bonds: np.ndarray, num_atoms: int) -> None:
    kinds, ends = bonds[:, 1], bonds[:, [0, 2]]
    known = f"1 to {len(BOND_TYPES)}"
    if len(bonds) and not 1 <= kinds.min() <= kinds.max() <= len(BOND_TYPES):
        bad = kinds[(kinds < 1) | (kinds > len(BOND_TYPES))][0]
        raise _BadMolecule(f"bond types are {known}, but one is {bad}")
    if len(bonds) and not 0 <= ends.min() <= ends.max() < num_atoms:
        bad = ends[(ends < 0) | (ends >= num_atoms)][0]
        raise _BadMolecule(f"atoms are 0 to {num_atoms - 1}, but a bond has atom {bad}")
    if (ends[:, 0] == ends[:, 1]).any():
        raise _BadMolecule("a bond must join two atoms, but one joins an atom with itself")


def read_compact(path: Path | str, name: str = "qm9") -> GraphData:
    """The molecules of an .npz file whose arrays hold all molecules one after the other."""
    path = Path(path)
    arrays = read_arrays(path, lambda each: each in COUNTS or each in NUMBERS)
    _check_shapes(arrays, path)
    _check_values(arrays, path)
    num_atoms, num_bonds = (arrays[key].astype(np.int64) for key in ("num_atoms", "num_bonds"))
    bonds = np.stack(
        [arrays[key].astype(np.int64) for key in ("bond_src", "bond_type", "bond_dst")], 1
    )
    molecule = np.repeat(np.arange(len(num_bonds)), num_bonds)
    _check_all_bonds(bonds, num_atoms[molecule], molecule, path)
    flags = arrays["atom_flags"]
    atoms = Atoms(
        number=arrays["atomic_number"],
        charge=arrays["mulliken_charge_1e6"] * SCALE,
        is_acceptor=flags[:, 0],
        is_donor=flags[:, 1],
        is_aromatic=flags[:, 2],
        hybrid=flags[:, 3],
        hydrogens=flags[:, 4],
    )
    split = {part: np.flatnonzero(arrays["split"] == n) for n, part in enumerate(SPLITS)}
    y, ids = arrays["targets"].astype(np.float32), arrays["qm9_index"].astype(np.int64)
    return molecules(
        name, atoms.features(), num_atoms, bonds, num_bonds, y, ids, split, TASK, SOURCE
    )


def _check_shapes(arrays: dict[str, np.ndarray], path: Path) -> None:
    """All arrays are there, with a row for each molecule, atom or bond."""
    for key in (*COUNTS, *NUMBERS):
        if key not in arrays:
            raise ValueError(f"{path} has no array {key!r}")
        columns = (COLUMNS[key],) if key in COLUMNS else ()
        if arrays[key].ndim != 1 + len(columns) or arrays[key].shape[1:] != columns:
            raise ValueError(f"{path}: {key} has the wrong shape {list(arrays[key].shape)}")
        if key in COUNTS and arrays[key].dtype.kind not in "iu":
            raise ValueError(f"{path}: {key} must hold integers, but is {arrays[key].dtype}")
    lengths = {
        "molecule": len(arrays["split"]),
        "atom": int(arrays["num_atoms"].sum()),
        "bond": int(arrays["num_bonds"].sum()),
    }
    kinds = {key: kind for key, (kind, _, _) in COUNTS.items()} | NUMBERS
    for key, kind in kinds.items():
        length, found = lengths[kind], len(arrays[key])
        if found != length:
            raise ValueError(f"{path}: {key} must have {length} rows, but has {found}")


def _check_values(arrays: dict[str, np.ndarray], path: Path) -> None:
    for key, (kind, lowest, highest) in COUNTS.items():
        values = arrays[key]
        wrong = (values < lowest) | (values > highest)
        if wrong.any():
            place = tuple(int(each[0]) for each in wrong.nonzero())
            row, *column = place
            bound = highest[column[0]] if isinstance(highest, tuple) else highest
            allowed = f"{lowest} or more" if bound >= MAX_COUNT else f"{lowest} to {bound}"
            name = f"{key} (column {column[0]})" if column else key
            value = values[place]
            raise ValueError(f"{path}: {name} of {kind} {row} must be {allowed}, but is {value}")
    for key in NUMBERS:
        if not (np.abs(arrays[key]) <= np.finfo(np.float32).max).all():
            raise ValueError(f"{path}: {key} must be finite numbers of float32")
    for number, part in enumerate(SPLITS):
        if not (arrays["split"] == number).any():
            raise ValueError(f"{path}: there are no molecules for {part}")


def _check_all_bonds(
    bonds: np.ndarray, num_atoms: np.ndarray, molecule: np.ndarray, path: Path
) -> None:
    ends = bonds[:, [0, 2]]
    wrong = (bonds[:, 1] < 1) | (bonds[:, 1] > len(BOND_TYPES))
    wrong |= (ends < 0).any(1) | (ends >= num_atoms[:, None]).any(1) | (ends[:, 0] == ends[:, 1])
    if wrong.any():
        bond = int(np.argmax(wrong))
        first, kind, second = bonds[bond]
        raise ValueError(
            f"{path}: molecule {molecule[bond]} has {num_atoms[bond]} atoms and bond types 1 to "
            f"{len(BOND_TYPES)}, but a bond of type {kind} between atoms {first} and {second}"
        )
