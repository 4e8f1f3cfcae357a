"""The inspect page of molecules: attention by bond type, and pictures of molecules."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

from dynagat.data.molecules import Molecule, molecule_of
from dynagat.data.qm9 import read_qm9
from dynagat.report.microscope import layout as layouts
from dynagat.report.microscope.molecules import Drawing, choose
from dynagat.report.microscope.shades import shade_of
from tests.test_cli import dynagat
from tests.test_qm9 import folder_of, water

CARBON = [0, 1, 0, 0, 0, 6, 0.1, 0, 0, 0, 0, 1, 0, 0, 2]
TINY = ["--mechanism", "gatv2", "--heads", 2, "--seeds", 1]
for _setting in ("dim=8", "layers=2", "max_rounds=1", "target=homo"):
    TINY += ["--set", _setting]


def formaldehyde(number):
    oxygen, hydrogen = water()["node_features"][:2]
    bonds = [[0, 2, 1], [0, 1, 2], [0, 1, 3]]
    return water(number, node_features=[CARBON, oxygen, hydrogen, hydrogen], graph=bonds)


BENZENE = Molecule("benzene", ("C",) * 6, tuple((n, (n + 1) % 6, "aromatic") for n in range(6)))
WATER = Molecule("water", ("O", "H", "H"), ((0, 1, "single"), (0, 2, "single")))


@pytest.fixture(params=["RDKit", "a simple layout"])
def source(request, monkeypatch):
    """With RDKit, and without it."""
    if request.param != "RDKit":
        monkeypatch.setitem(sys.modules, "rdkit", None)
    assert layouts.has_rdkit() == (request.param == "RDKit")
    return request.param


# The page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a network was trained for one round on a few molecules."""
    folder = tmp_path_factory.mktemp("molecules")
    (folder / "data" / "qm9").mkdir(parents=True)
    folder_of(folder / "data" / "qm9", test=[water(3), formaldehyde(7), water(8)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNAGAT_CACHE", str(folder / "cache"))
        patch.setenv("DYNAGAT_DATA", str(folder / "data"))
        dynagat("run", "qm9", *TINY, cwd=folder)
        yield folder


def test_the_page_of_a_run_has_bond_types_pictures_and_names_of_atoms(folder, source):
    text = dynagat("inspect", "qm9", cwd=folder).stdout
    assert re.search(r"layer +head +self-loop +single +double +triple +aromatic", text)
    page = (folder / "inspect.html").read_text()
    table = page.split('class="shares">')[1].split("</table>")[0]
    header = re.findall(r'<th scope="col">(.*?)</th>', table)
    assert header == ["self-loop", "single", "double", "triple", "aromatic"]
    uniform, *heads = (re.findall(r"<td.*?>([\d.–]+)", row) for row in table.split("</tr>")[1:4])
    # mean over 10 atoms, 2 × (O 1/3, 2 H 1/2), C 1/4, O 1/2, 2 H 1/2: 0.442 on the atom itself
    assert uniform == ["0.44", "0.48", "0.08", "–", "–"]
    assert len(heads) == 2
    assert all(sum(map(float, row[:3])) == pytest.approx(1, abs=0.016) for row in heads)
    assert "the largest with a bond of each type: qm9 7 (double) and qm9 3 (single)." in page
    assert f"Positions of the atoms: {source}" in page
    assert len(re.findall(r"<figcaption>head \d", page.split('id="molecules"')[1])) >= 2 * 2 * 2
    label = re.search(r'aria-label="qm9 7, layers.1.conv, head 1: (.*?)"', page)[1]
    assert re.match(
        r"[CHO]\d attends to (itself|[CHO]\d) with 0\.\d\d \(uniform 0\.\d\d\); ", label
    )
    names = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])["names"]
    assert names[:5] == ["O0 of qm9 3", "H1 of qm9 3", "H2 of qm9 3", "C0 of qm9 7", "O1 of qm9 7"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_fit_on_a_phone_and_letters_have_the_colour_of_text(folder, look_at, scheme):
    dynagat("inspect", "qm9", cwd=folder)
    view = look_at(folder / "inspect.html", width=390, scheme=scheme)
    assert view.locator("#molecules figure svg").first.is_visible()
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    read = "each => [getComputedStyle(each).fill, getComputedStyle(document.body).color]"
    fill, colour = view.locator("#atoms-0 text").first.evaluate(read)
    assert fill == colour


# The pictures


def test_a_molecule_is_read_with_the_names_of_its_elements_and_bonds(tmp_path):
    data = read_qm9(folder_of(tmp_path, train=[water(5), formaldehyde(7)]))
    assert molecule_of(data, 1) == Molecule(
        "qm9 7", ("C", "O", "H", "H"), ((0, 1, "double"), (0, 2, "single"), (0, 3, "single"))
    )


def test_rings_and_half_bonds_have_the_width_and_colour_of_their_attention():
    weights = {(0, 0): 0.5, (0, 1): 0.25, (0, 2): 0.25, (1, 0): 1.0, (1, 1): 0.0}
    (head,) = Drawing(WATER).heads({edge: np.array([w]) for edge, w in weights.items()})
    of_oxygen, of_hydrogen = head["rings"]
    assert (of_oxygen["atom"], of_oxygen["width"], of_oxygen["shade"]) == (0, 4.8, 5)
    assert (of_hydrogen["width"], of_hydrogen["shade"]) == (0.4, 0)  # no attention
    assert [half["width"] for half in head["halves"]] == [2.8, 2.8, 4.4]  # of hydrogen: half
    assert [half["shade"] for half in head["halves"]] == [3, 3, 6]
    assert head["words"].startswith("H1 attends to O0 with 1.00 (uniform 0.50); O0 attends to ")


def test_colours_say_how_attention_compares_with_uniform_weights():
    assert [shade_of(times * 0.1, 0.1) for times in (0, 0.25, 0.5, 1, 1.15, 2, 4, 9)] == [
        0, 0, 2, 4, 4, 6, 8, 8
    ]  # fmt: skip


def test_the_largest_molecule_with_each_type_of_bond_is_drawn():
    chain = Molecule("chain", ("C",) * 3, ((0, 1, "triple"), (1, 2, "single")))
    long = Molecule("long", ("C",) * 4, ((0, 1, "triple"), (1, 2, "single"), (2, 3, "single")))
    given = {0: WATER, 3: chain, 6: long, 10: BENZENE}
    assert choose(given) == {10: "aromatic", 6: "triple", 0: "single"}  # the first of equal size
    assert choose({}) == {}


# The layout


def distance(at, a, b):
    return float(np.linalg.norm(at[a] - at[b]))


def test_a_ring_is_regular_and_hydrogens_are_apart(source):
    at = layouts.layout(BENZENE)
    assert [distance(at, n, (n + 1) % 6) for n in range(6)] == pytest.approx([1] * 6, abs=0.1)
    assert [distance(at, n, n + 3) for n in range(3)] == pytest.approx([2] * 3, abs=0.25)
    bonds = ((0, 1, "single"), *((n // 3, n + 2, "single") for n in range(6)))
    ethane = Molecule("ethane", ("C", "C", *"HHHHHH"), bonds)
    at = layouts.layout(ethane)
    assert [distance(at, n // 3, n + 2) for n in range(6)] == pytest.approx([0.62] * 6)
    gaps = [distance(at, a, b) for a in range(8) for b in range(a)]
    assert min(gaps) > 0.5


@pytest.mark.parametrize(
    "molecule",
    [
        Molecule("helium", ("He",), ()),
        Molecule("hydrogen", ("H", "H"), ((0, 1, "single"),)),
        Molecule("two parts", ("O", "H", "H", "Na", "?"), ((0, 1, "single"), (0, 2, "single"))),
    ],
    ids=lambda molecule: molecule.name,
)
def test_any_molecule_has_a_layout_of_distinct_positions(molecule, source):
    at = layouts.layout(molecule)
    assert np.isfinite(at).all()
    assert len(np.unique(at.round(2), axis=0)) == len(molecule.elements)
