"""Pictures of molecules that show the attention of each head.

An atom distributes its attention, 1 in total, over itself and its neighbours. Its ring shows the
attention on itself; the half of a bond next to it shows the attention on the other atom. Width is
attention; colour compares it with uniform weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynagat.analysis.attentive import Layer
from dynagat.data.molecules import BOND_TYPES, Molecule
from dynagat.report.microscope.layout import has_rdkit, layout
from dynagat.report.microscope.shades import shade_of
from dynagat.report.wording import listed

UNIT = 52  # length of a bond in a picture
SCALE = 0.85  # pixels per unit
MARGIN = 20
RADIUS, SMALL = 8.0, 3.5  # of atoms and of hydrogen
HYDROGEN = 0.5  # width of what hydrogen attends to, relative to other atoms
THIN, THICK = 0.8, 8.0  # width of no attention, and what all attention adds
GAP = 0.7  # of the two halves of a bond, from its middle
APART = 2.4  # of the lines of a double bond, from its middle
LINES = {"single": (0,), "double": (-1, 1), "triple": (-1.8, 0, 1.8), "aromatic": (-1, 1)}
STRONGEST = 3  # that the text of a picture names

Edges = dict[tuple[int, int], np.ndarray]  # (query, key) -> [H], atoms of one molecule


def pictures(molecules: Mapping[int, Molecule], layers: Sequence[Layer]) -> dict[str, Any] | None:
    """What the template draws; None without molecules."""
    chosen = choose(molecules)
    if not chosen:
        return None
    drawings = {first: Drawing(molecules[first]) for first in chosen}
    return {
        "why": _why(molecules, chosen),
        "source": "RDKit" if has_rdkit() else "a simple layout; install dynagat[chem] for RDKit's",
        "widths": [(weight, width_of(weight)) for weight in (0.1, 0.4, 0.7, 1.0)],
        "structures": [each.structure() for each in drawings.values()],
        "layers": [
            {
                "name": layer.name or layer.kind,
                "molecules": [
                    each.heads(attention_in(layer, first, each.molecule))
                    for first, each in drawings.items()
                ],
            }
            for layer in layers
        ],
    }


def choose(molecules: Mapping[int, Molecule]) -> dict[int, str]:
    """For each type of bond, the molecule with the most atoms that has one; none twice."""
    by_size = sorted(molecules, key=lambda first: -len(molecules[first].elements))
    chosen: dict[int, str] = {}
    for kind in reversed(BOND_TYPES):
        having = (first for first in by_size if kind in molecules[first].types)
        largest = next((first for first in having if first not in chosen), None)
        if largest is not None:
            chosen[largest] = kind
    return chosen


def _why(molecules: Mapping[int, Molecule], chosen: Mapping[int, str]) -> str:
    names = listed([f"{molecules[first].name} ({kind})" for first, kind in chosen.items()])
    return f"Of {len(molecules)} molecules, the largest with a bond of each type: {names}."


def attention_in(layer: Layer, first: int, molecule: Molecule) -> Edges:
    """The attention of the atoms of a molecule, in the first call of a layer."""
    view, stop = layer.views[0], first + len(molecule.elements)
    mine = ((view.query >= first) & (view.query < stop)).nonzero()[:, 0]
    edges: Edges = {}
    ends = ((getattr(view, name)[mine] - first).tolist() for name in ("query", "key"))
    weights = view.weight[mine].float().cpu().numpy()
    for query, key, weight in zip(*ends, weights, strict=True):
        edges[query, key] = edges.get((query, key), 0) + weight
    return edges


def width_of(weight: float) -> float:
    return round(THIN + THICK * weight, 1)


def formula(elements: Sequence[str]) -> list[tuple[str, str]]:
    """[("C", "7"), ("H", "10"), ("O", "")]: carbon, hydrogen, then the others by name."""
    counts = Counter(elements)
    order = sorted(counts, key=lambda each: (each != "C", each != "H", each))
    return [(each, "" if counts[each] == 1 else str(counts[each])) for each in order]


class Drawing:
    """A molecule with its positions."""

    def __init__(self, molecule: Molecule) -> None:
        self.molecule = molecule
        self.at = layout(molecule) * UNIT  # [n, 2]
        self.radius = [SMALL if each == "H" else RADIUS for each in molecule.elements]
        self.half = np.abs(self.at).max(0) + MARGIN

    def label(self, atom: int) -> str:
        return f"{self.molecule.elements[atom]}{atom}"

    def structure(self) -> dict[str, Any]:
        """The molecule itself: numbered atoms, and bonds as lines."""
        elements = self.molecule.elements
        return {
            "name": self.molecule.name,
            "formula": formula(elements),
            "box": " ".join(f"{each:.0f}" for each in (*-self.half, *(2 * self.half))),
            "width": round(2 * SCALE * self.half[0]),
            "bonds": [line for bond in self.molecule.bonds for line in self._lines(*bond)],
            "atoms": [
                {"x": f"{x:.1f}", "y": f"{y:.1f}", "r": self.radius[atom], "element": each,
                 "atom": atom}
                for atom, (each, (x, y)) in enumerate(zip(elements, self.at, strict=True))
            ],
        }  # fmt: skip

    def _lines(self, a: int, b: int, kind: str) -> list[dict[str, Any]]:
        """The lines of a bond; the second line of an aromatic one is dashed."""
        start, end = self.at[a], self.at[b]
        along = (end - start) / max(float(np.linalg.norm(end - start)), 1e-9)
        across = APART * along[::-1] * (-1, 1)
        return [
            {
                "d": path(start + n * across, end + n * across),
                "dashed": kind == "aromatic" and n > 0,
            }
            for n in LINES[kind]
        ]

    def heads(self, edges: Edges) -> list[dict[str, Any]]:
        """One picture per head."""
        count = len(next(iter(edges.values()))) if edges else 0
        degree = Counter(query for query, _ in edges)
        return [
            self._head({edge: float(weight[h]) for edge, weight in edges.items()}, degree)
            for h in range(count)
        ]

    def _head(self, weights: dict[tuple[int, int], float], degree: Counter[int]) -> dict[str, Any]:
        marks = []
        for (query, key), weight in weights.items():
            size = HYDROGEN if self.molecule.elements[query] == "H" else 1
            mark = {
                "width": round(size * width_of(weight), 1),
                "shade": shade_of(weight, 1 / degree[query]),
            }
            if query == key:
                mark |= {"atom": query, "r": self.radius[query] + mark["width"] / 2}
            else:
                mark |= {"d": self._half(query, key)}
            marks.append(mark)
        return {
            "halves": [mark for mark in marks if "d" in mark],
            "rings": [mark for mark in marks if "atom" in mark],
            "words": self._words(weights, degree),
        }

    def _half(self, query: int, key: int) -> str:
        start, end = self.at[query], self.at[key]
        along = (end - start) / max(float(np.linalg.norm(end - start)), 1e-9)
        return path(start, (start + end) / 2 - GAP * along)

    def _words(self, weights: dict[tuple[int, int], float], degree: Counter[int]) -> str:
        """The edges whose attention exceeds that of uniform weights most."""
        above = sorted(weights, key=lambda edge: -weights[edge] * degree[edge[0]])
        parts = [
            f"{self.label(query)} attends to {'itself' if query == key else self.label(key)}"
            f" with {weights[query, key]:.2f} (uniform {1 / degree[query]:.2f})"
            for query, key in above[:STRONGEST]
        ]
        return "; ".join(parts)


def path(start: np.ndarray, end: np.ndarray) -> str:
    return f"M{start[0]:.1f} {start[1]:.1f}L{end[0]:.1f} {end[1]:.1f}"
