"""SMILES become molecules with the features and bonds of QM9; what can't be read is skipped."""

import builtins
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dynagat.data import read_molecules
from dynagat.data.assumptions import assumptions
from dynagat.data.molecules import BOND, GRAPH
from dynagat.data.qm9 import COMPACT
from dynagat.data.smiles import SmilesError, _rdkit, read_smiles
from dynagat.data.store import NODE
from dynagat.data.tables import TableError

REAL = Path(os.environ.get("DYNAGAT_DATA", "")) / "qm9"


def table(tmp_path, *rows, header="smiles,y"):
    path = tmp_path / "m.csv"
    path.write_text("\n".join([header, *rows]))
    return path


def test_atoms_and_bonds_of_pyrrole_with_a_nitrile():
    atoms, bonds = read_smiles("N#Cc1cc[nH]c1")
    x = atoms.features()
    assert x.shape == (11, 15)  # 7 atoms and 4 hydrogens
    number, charge, acceptor, donor, aromatic, sp, sp2, sp3, none, hydrogens = x[:, 5:].T
    assert number.tolist() == [7, 6, 6, 6, 6, 7, 6, 1, 1, 1, 1]
    assert not charge.any()
    assert acceptor.nonzero()[0].tolist() == [0, 5]
    assert donor.nonzero()[0].tolist() == [5]
    assert aromatic.nonzero()[0].tolist() == [2, 3, 4, 5, 6]
    assert sp.nonzero()[0].tolist() == [0, 1]
    assert sp2.nonzero()[0].tolist() == [2, 3, 4, 5, 6]
    assert not sp3.any()
    assert none.nonzero()[0].tolist() == [7, 8, 9, 10]
    assert hydrogens.tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    first, kind, second = bonds.T
    assert (first < second).all()
    assert Counter(kind.tolist()) == {1: 5, 3: 1, 4: 5}


def test_another_element_has_a_number_but_no_one_hot():
    x = read_smiles("[Cl]")[0].features()
    assert not x[0, :5].any()
    assert x[0, 5] == 17


@pytest.mark.parametrize(
    ("smiles", "why"),
    [
        ("C(", "RDKit can't read it"),
        ("C=C=C=C=Cl", "RDKit can't read it"),
        ("", "no atoms"),
        ("*C", "of no element"),
        ("[Fe]<-N", "bond of type dative"),
        ("C~C", "bond of type unspecified"),
    ],
)
def test_what_is_no_molecule_is_refused_silently(smiles, why, capfd):
    with pytest.raises(SmilesError, match=why):
        read_smiles(smiles)
    assert capfd.readouterr() == ("", "")


def rebuilt(numbers, bonds):
    """SMILES of atoms and bonds. Charges follow from valences, except in aromatic rings."""
    from rdkit import Chem

    kinds = dict(enumerate(("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC"), 1))
    molecule = Chem.RWMol()
    for number in numbers:
        atom = Chem.Atom(int(number))
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    for first, kind, second in bonds:
        molecule.AddBond(int(first), int(second), Chem.BondType.names[kinds[int(kind)]])
        if kind == 4:
            for atom in (first, second):
                molecule.GetAtomWithIdx(int(atom)).SetIsAromatic(True)
    for atom in molecule.GetAtoms():
        valence = sum(bond.GetBondTypeAsDouble() for bond in atom.GetBonds())
        if not atom.GetIsAromatic():
            atom.SetFormalCharge({(7, 4): 1, (8, 1): -1}.get((atom.GetAtomicNum(), valence), 0))
    Chem.SanitizeMol(molecule)
    return Chem.MolToSmiles(Chem.RemoveHs(molecule))


def kinds_of_bonds(x, bonds):
    """Each bond as the features of its ends and its type, in any order."""
    ends = [sorted((tuple(x[i]), tuple(x[j]))) for i, _, j in bonds.tolist()]
    return sorted((*pair, kind) for pair, kind in zip(ends, bonds[:, 1].tolist(), strict=True))


@pytest.mark.data
def test_smiles_of_published_molecules_give_their_features_and_bonds():
    """All of those with usual valences, which are more than nine in ten."""
    files = np.load(REAL / COMPACT)
    arrays = {name: files[name] for name in files.files}
    sizes = {name: np.append(0, np.cumsum(arrays[name], dtype=np.int64))
             for name in ("num_atoms", "num_bonds")}  # fmt: skip
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(arrays["split"] == 2))[:400]
    same, usual = 0, 0
    for graph in chosen.tolist():
        atoms, edges = (slice(*each[graph : graph + 2]) for each in sizes.values())
        numbers = arrays["atomic_number"][atoms]
        columns = [arrays[name][edges] for name in ("bond_src", "bond_type", "bond_dst")]
        bonds = np.stack(columns, 1).astype(np.int64)
        order = np.array([0, 1, 2, 3, 1.5])[bonds[:, [1, 1]]]
        valence = np.bincount(bonds[:, [0, 2]].ravel(), order.ravel(), len(numbers))
        if ((numbers == 6) & (valence == 3)).any() or ((numbers == 7) & (valence == 2)).any():
            continue  # the published graph lacks a double bond
        usual += 1
        published = np.column_stack([numbers, arrays["atom_flags"][atoms]]).astype(np.int64)
        read, its_bonds = read_smiles(rebuilt(numbers, bonds))
        flags = [read.is_acceptor, read.is_donor, read.is_aromatic, read.hybrid, read.hydrogens]
        x = np.column_stack([read.number, *flags]).astype(np.int64)
        alike = sorted(map(tuple, x)) == sorted(map(tuple, published))
        same += alike and kinds_of_bonds(x, its_bonds) == kinds_of_bonds(published, bonds)
    assert same == usual > 0.9 * len(chosen)


# Tables


def test_rows_without_a_molecule_or_a_target_are_left_out_and_counted(tmp_path):
    rows = ["CCO,1.5,train", "C(,9,train", "CC,,test", ",7,test", "C,2.5,valid", "CN,0.5,test",
            "CO,4.5,train"]  # fmt: skip
    data = read_molecules(
        table(tmp_path, *rows, header="smiles,y,split"), smiles="smiles", target="y"
    )
    assert list(data.nodes[GRAPH].arrays["id"]) == ["CCO", "C", "CN", "CO"]
    assert data.y.tolist() == [1.5, 2.5, 0.5, 4.5]
    parts = {part: index.tolist() for part, index in data.split.items()}
    assert parts == {"train": [0, 3], "valid": [1], "test": [2]}
    assert data.nodes[GRAPH].arrays["num_nodes"].tolist() == [9, 5, 7, 6]
    assert data.nodes[NODE].count == 27
    assert data.edges[BOND].count == 8 + 4 + 6 + 5
    sentences = assumptions(data)
    assert ("Left out: 2 of 7 rows without a usable SMILES: line 3 ('C(': RDKit can't read it), "
            "line 5 (it is empty).") in sentences  # fmt: skip
    assert "Left out: 1 of 7 rows without a target." in sentences
    assert "Column 'split' holds the split." in sentences


def test_rows_in_no_part_of_the_split_are_counted(tmp_path):
    rows = ["CCO,1.5,train", "CC,2.5,", "C,2.5,valid", "CN,0.5,test", "CO,,", "CS,3,"]
    data = read_molecules(
        table(tmp_path, *rows, header="smiles,y,split"), smiles="smiles", target="y"
    )
    sentence = "Column 'split' holds the split; 2 rows with a target are in no part."
    assert sentence in assumptions(data)


def test_a_class_of_unreadable_molecules_is_no_class(tmp_path):
    rows = [f"{'C' * (1 + n)},{'a' if n % 2 else 'b'}" for n in range(12)]
    data = read_molecules(table(tmp_path, *rows, "C(,odd"), smiles="smiles", target="y")
    assert data.task["classes"] == ["a", "b"]
    assert sum(len(part) for part in data.split.values()) == 12


def test_csv_and_parquet_hold_the_same_molecules(tmp_path):
    path = table(tmp_path, *[f"{'C' * (1 + n)},{n / 7}" for n in range(12)])
    pd.read_csv(path).to_parquet(tmp_path / "m.parquet")
    one, other = (read_molecules(each, smiles="smiles", target="y")
                  for each in (path, tmp_path / "m.parquet"))  # fmt: skip
    np.testing.assert_array_equal(one.nodes[NODE].arrays["x"], other.nodes[NODE].arrays["x"])
    np.testing.assert_allclose(one.y, other.y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smiles": "mol"}, "has no column 'mol'; it has 'smiles', 'y'"),
        ({"smiles": "y", "target": "y"}, "'y' can be only one of smiles, target and split"),
        ({"smiles": "smiles", "task": "multilabel"}, "task of molecules must be one of auto, "),
        ({"smiles": "y"}, r"m.csv: column 'y' holds no molecule .*, as in line 2 \('1': RDKit"),
    ],
)
def test_a_table_without_molecules_is_one_sentence(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_molecules(table(tmp_path, "C,1", "CC,2"), **options)


def test_an_empty_table_is_one_sentence(tmp_path):
    with pytest.raises(TableError, match="no rows"):
        read_molecules(table(tmp_path), smiles="smiles")


def test_without_rdkit_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name.startswith("rdkit"):
            raise ModuleNotFoundError(name=name)
        return real(name, *rest)

    _rdkit.cache_clear()
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ValueError, match=r"needs rdkit; pip install 'dynagat\[chem\]'"):
        read_smiles("C")
