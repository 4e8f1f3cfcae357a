"""Sparse matrices of rows (CSR) from files: checked before they are used or made dense."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

MAX_DENSE = 1 << 31  # bytes of a matrix that is made dense


def check_csr(data: Any, indices: Any, indptr: Any, shape: Any) -> tuple[int, int]:
    """The arrays must form a matrix of this shape: row r holds indptr[r] to indptr[r + 1].

    Returns the shape as two integers.
    """
    rows, columns = _check_shape(shape)
    for name, array, kinds in (
        ("data", data, "biuf"),
        ("indices", indices, "iu"),
        ("indptr", indptr, "iu"),
    ):
        is_vector = isinstance(array, np.ndarray) and array.ndim == 1
        if not is_vector or array.dtype.kind not in kinds:
            raise ValueError(f"{name} of a sparse matrix must be a list of numbers")
    is_sorted = len(indptr) == rows + 1 and indptr[0] == 0 and not (indptr[1:] < indptr[:-1]).any()
    if not is_sorted or indptr[-1] != len(indices) or len(data) != len(indices):
        raise ValueError(f"the rows of a sparse matrix do not fit its shape {(rows, columns)}")
    if len(indices) and not 0 <= indices.min() <= indices.max() < columns:
        raise ValueError(f"a sparse matrix of {columns} columns has an index outside of them")
    return rows, columns


def row_index(indptr: np.ndarray) -> np.ndarray:
    """The row of each entry: int64."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr.astype(np.int64)))


def dense(data: Any, indices: Any, indptr: Any, shape: Any) -> np.ndarray:
    """[rows, columns] float32; entries that occur twice are added."""
    rows, columns = check_csr(data, indices, indptr, shape)
    if 4 * rows * columns > MAX_DENSE:
        limit = f"{MAX_DENSE / 1e9:.0f} GB"
        raise ValueError(f"a sparse matrix of shape {(rows, columns)} would take over {limit}")
    matrix = np.zeros((rows, columns), np.float32)
    np.add.at(matrix, (row_index(indptr), indices), data)
    return matrix


def _check_shape(shape: Any) -> tuple[int, int]:
    """Two integers, as a tuple or as an array."""
    sizes = shape.tolist() if isinstance(shape, np.ndarray) else shape
    is_pair = isinstance(sizes, (list, tuple)) and len(sizes) == 2
    if not is_pair or not all(type(each) is int and 0 <= each < 2**48 for each in sizes):
        raise ValueError(f"a sparse matrix has the impossible shape {reprlib.repr(shape)}")
    return sizes[0], sizes[1]
