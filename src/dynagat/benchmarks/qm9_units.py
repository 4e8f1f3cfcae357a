"""QM9 in real units: normalised target t = scale · value + offset + Σ_e per_atom_e · count_e

The published targets are normalised by rules that were not published. These numbers were fitted by
least squares to the 20,000 published validation and test targets and the values of the data set.
The energies u0, u, h and g were counted from those of single atoms, so each atom of an element e
adds a constant. A value has about six digits, since that is what the published targets have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynagat.data.molecules import ELEMENTS


@dataclass(frozen=True)
class Unit:
    """The unit of a property, and how its targets were normalised."""

    name: str
    scale: float
    offset: float
    per_atom: tuple[float, ...] = (0.0,) * len(ELEMENTS)  # of each of ELEMENTS

    def values(self, targets: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Normalised targets [G], and atoms of each element [G, 5] -> values in the unit."""
        return (targets - self.offset - counts @ np.array(self.per_atom)) / self.scale

    def targets(self, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The inverse of `values`."""
        return values * self.scale + self.offset + counts @ np.array(self.per_atom)


UNITS = {
    "mu": Unit("D", 0.6651372485476842, -1.7779075668663018),
    "alpha": Unit("Bohr³", 0.1223548857255044, -9.210982217104503),
    "homo": Unit("Ha", 45.52352999091587, 10.935214936736855),
    "lumo": Unit("Ha", 21.345071669066176, -0.2526422184271323),
    "gap": Unit("Ha", 21.190246138223564, -5.340919363084348),
    "r2": Unit("Bohr²", 0.003565410837384802, -4.240732320266278),
    "zpve": Unit("Ha", 30.17894922168716, -4.499414331429816),
    "u0": Unit(
        "Ha",
        2.6359504466670716,
        7.373352428312913,
        (
            1.3186948377644114,
            99.76221555707622,
            143.88035278291312,
            197.86651054300324,
            262.85363088608074,
        ),
    ),
    "u": Unit(
        "Ha",
        2.6128128665997847,
        7.353230541642105,
        (
            1.3034199878392485,
            98.8828304849055,
            142.6137145863589,
            196.12599809423904,
            260.542681038472,
        ),
    ),
    "h": Unit(
        "Ha",
        2.5943568418414684,
        7.343027448446506,
        (
            1.2917614041550962,
            98.18190660439697,
            141.60389055825416,
            194.7381814272727,
            258.699846756816,
        ),
    ),
    "g": Unit(
        "Ha",
        2.8650113481922417,
        7.458235196672774,
        (
            1.4638116532773324,
            108.4731028631596,
            156.42645950451654,
            215.10371119755285,
            285.7377353572914,
        ),
    ),
    "cv": Unit("cal/(mol K)", 0.24585172844121617, -7.773946956028772),
    "omega": Unit("1/cm", 0.003746745798934966, -13.12903029551152),
}
