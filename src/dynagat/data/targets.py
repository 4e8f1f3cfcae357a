"""The task of an array of targets: classification, several labels per node, or regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagat.data.checks import check_labels


def targets(y: Any, source: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """y in the form of GraphData, and its task.

    A vector of integers is for classification, one of floats for regression. A matrix of 0 and 1
    (nan where unknown) is for several labels; a matrix of one column is a vector. One-hot rows are
    read as labels as well, since the array does not say that they exclude each other.
    """
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2:
        return _labels(y, source)
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise ValueError(f"{source} must be [N] or [N, labels] numbers, but is {y.dtype} {y.shape}")
    if y.dtype.kind == "f":
        return y.astype(np.float32, copy=False), {"kind": "regression"}
    y = y.astype(np.int64, copy=False)
    check_labels(y, source)
    classes = [str(each) for each in range(int(y.max(initial=-1)) + 1)]
    return y, {"kind": "classification", "classes": classes}


def _labels(y: np.ndarray, source: Any) -> tuple[np.ndarray, dict[str, Any]]:
    if y.dtype.kind not in "biuf":
        raise ValueError(f"{source} must hold numbers, but holds {y.dtype}")
    y = y.astype(np.float32, copy=False)
    wrong = ~(np.isnan(y) | (y == 0) | (y == 1))
    if wrong.any():
        raise ValueError(f"{source} must hold labels of 0 and 1, but one is {y[wrong][0]}")
    return y, {"kind": "multilabel", "classes": [str(each) for each in range(y.shape[1])]}
