"""The numbers of Figure 4, and the p-values of the appendix's versions."""

from __future__ import annotations

from dynagat.experiment import Published
from dynagat.metrics import ACCURACY

RATIOS = tuple(round(0.05 * step, 2) for step in range(11))
ARXIV_FIGURE = {  # noise = 0, 0.05 .. 0.5, per cent
    ("gat", 8): [71.536, 70.440, 69.361, 68.494, 68.066, 67.513, 67.284, 66.719, 66.588, 66.157,
                 65.602],
    ("dpgat", 1): [71.485, 70.436, 69.834, 69.526, 68.918, 68.563, 68.325, 67.819, 67.692, 67.022,
                   66.773],
    ("gatv2", 1): [71.785, 70.683, 70.025, 69.325, 68.957, 68.624, 68.514, 67.973, 67.467, 67.267,
                   66.544],
}  # fmt: skip
MAG_FIGURE = {
    ("gat", 1): [32.200, 30.726, 29.749, 29.220, 28.659, 28.620, 28.604, 28.235, 27.779, 28.086,
                 28.346],
    ("dpgat", 1): [32.770, 31.465, 30.752, 31.299, 31.107, 30.986, 31.335, 31.285, 31.196, 30.879,
                   31.278],
    ("gatv2", 1): [32.612, 31.252, 30.908, 30.674, 30.498, 30.436, 30.925, 31.007, 30.787, 30.648,
                   30.409],
}  # fmt: skip

# GATv2 against GAT, as printed in the appendix's figures, for noise = 0.1, 0.15 .. 0.45
ARXIV_P_VALUES = ("0.0002", "<0.0001", "<0.0001", "0.0001", "<0.0001", "<0.0001", "<0.0001",
                  "<0.0001")  # fmt: skip
MAG_P_VALUES = ("0.0006", "0.0001", "<0.0001", "<0.0001", "<0.0001", "<0.0001", "<0.0001",
                "<0.0001")  # fmt: skip
P_VALUES = {
    "ogbn-arxiv": dict(zip(RATIOS[2:10], ARXIV_P_VALUES, strict=True)),
    "ogbn-mag": dict(zip(RATIOS[2:10], MAG_P_VALUES, strict=True)),
}


def published() -> tuple[Published, ...]:
    return tuple(
        Published("Figure 4", mechanism, heads, {"dataset": dataset, "noise": noise},
                  ACCURACY.on("test"), round(percent / 100, 5), n=10)
        for dataset, figure in (("ogbn-arxiv", ARXIV_FIGURE), ("ogbn-mag", MAG_FIGURE))
        for (mechanism, heads), percents in figure.items()
        for noise, percent in zip(RATIOS, percents, strict=True)
    )  # fmt: skip
