"""Safe reading of pickle files: only arrays of numbers, sparse matrices, lists and dictionaries.

numpy's own unpickling trusts the file: a forged dtype makes it use raw bytes as pointers. Here
arrays and dtypes are read by stand-ins, which check them before any array is made.
"""

from __future__ import annotations

import math
import pickle
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

DTYPE = re.compile(r"b1|[iu][1248]|f[248]")
MAX_DENSE = 1 << 34  # bytes of a sparse matrix that is made dense


class SparseRows:
    """A pickled scipy.sparse.csr_matrix: data, indices, indptr and _shape."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    _shape: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    def dense(self) -> np.ndarray:
        """[rows, columns] float32"""
        self._check()
        dense = np.zeros(self.shape, np.float32)
        row = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        np.add.at(dense, (row, self.indices), self.data)
        return dense

    def _check(self) -> None:
        rows, columns = _check_shape(self._shape, 2)
        for name, kinds in (("data", "biuf"), ("indices", "iu"), ("indptr", "iu")):
            array = getattr(self, name, None)
            if (
                not isinstance(array, np.ndarray)
                or array.ndim != 1
                or array.dtype.kind not in kinds
            ):
                raise ValueError(f"{name} of a sparse matrix must be a list of numbers")
        ends = self.indptr
        is_sorted = len(ends) == rows + 1 and ends[0] == 0 and not (np.diff(ends) < 0).any()
        if not is_sorted or ends[-1] != len(self.indices) or len(self.data) != len(self.indices):
            raise ValueError(f"the rows of a sparse matrix do not fit its shape {self._shape}")
        if len(self.indices) and not 0 <= self.indices.min() <= self.indices.max() < columns:
            raise ValueError(f"a sparse matrix of {columns} columns has an index outside of them")
        if 4 * rows * columns > MAX_DENSE:
            limit = f"{MAX_DENSE / 1e9:.0f} GB"
            raise ValueError(f"a sparse matrix of shape {self._shape} would take over {limit}")


class _Dtype:
    """Stands in for numpy.dtype: a plain numeric type, by its name."""

    def __init__(self, name: Any = None, *_: Any) -> None:
        if not isinstance(name, str) or not DTYPE.fullmatch(name):
            raise ValueError(f"it holds an array of {name!r} instead of numbers")
        self.name: str = name
        self.byte_order: Any = "="

    def __setstate__(self, state: Any) -> None:
        """Only the byte order counts."""
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "|", "="):
            raise ValueError(f"it holds an array of unknown byte order {order!r}")
        self.byte_order = order

    def numpy(self) -> np.dtype:
        return np.dtype(self.name).newbyteorder(self.byte_order)


class _Array:
    """Stands in for an array: its state is checked, then `array` is made of its bytes."""

    array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], _Dtype):
            raise ValueError("it holds an array in an unknown form")
        _, shape, dtype, is_fortran, content = state
        if isinstance(content, str):  # of Python 2
            content = content.encode("latin1")
        if not isinstance(content, bytes):
            raise ValueError("it holds an array of objects instead of numbers")
        shape, kind = _check_shape(shape), dtype.numpy()
        if math.prod(shape) * kind.itemsize != len(content):
            raise ValueError(f"it holds {len(content)} bytes for an array of shape {shape}")
        order = "F" if is_fortran else "C"
        flat = np.frombuffer(content, kind).astype(kind.newbyteorder("="))
        self.array = flat.reshape(shape, order=order)


def _check_shape(shape: Any, num_axes: int | None = None) -> tuple[int, ...]:
    is_shape = isinstance(shape, tuple) and all(type(n) is int and 0 <= n < 2**48 for n in shape)
    if not is_shape or len(shape) != (len(shape) if num_axes is None else num_axes):
        raise ValueError(f"it holds an array of the impossible shape {str(shape)[:80]}")
    return shape


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _with_arrays(value: Any) -> Any:
    """The content with every stand-in replaced by its array."""
    if isinstance(value, _Array):
        if value.array is None:
            raise ValueError("it holds an array without content")
        return value.array
    if isinstance(value, SparseRows):
        for name, each in vars(value).items():
            setattr(value, name, _with_arrays(each))
        return value
    if isinstance(value, dict):
        return {key: _with_arrays(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_arrays(each) for each in value)
    return value


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":  # the only one that Python writes; other codecs may run code
        raise pickle.UnpicklingError(f"it encodes bytes as {encoding!r}")
    return text.encode("latin1")


class _ArrayType:
    """Stands in for numpy.ndarray, which pickles only name."""


KNOWN: dict[tuple[str, str], Any] = {
    ("scipy.sparse.csr", "csr_matrix"): SparseRows,
    ("scipy.sparse._csr", "csr_matrix"): SparseRows,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__(file, encoding="latin1")
        self._path = path

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in KNOWN:
            known = "arrays, sparse matrices, lists and dictionaries"
            raise _Refused(
                f"{self._path} holds a {module_name}.{global_name}, but may hold only {known}"
            )
        return KNOWN[module_name, global_name]

    def persistent_load(self, pid: Any, /) -> Any:
        raise _Refused(f"{self._path} holds torch tensors where numpy arrays are expected")


class _Refused(ValueError):
    """The message names the file already."""


def read_pickle(path: Path) -> Any:
    """The content of a file pickled by Python 2 or 3; an error if it holds anything but KNOWN."""
    with _explain_errors(path), open(path, "rb") as file:
        return _with_arrays(_Unpickler(file, path).load())


def read_torch_pickle(path: Path) -> Any:
    """The same for a file of numpy arrays that torch.save wrote, as a zip or in the old format.

    torch.load(weights_only=True) reads only pickle protocol 2, but OGB uses others as well.
    """
    with _explain_errors(path):
        if not zipfile.is_zipfile(path):
            with open(path, "rb") as file:
                for _ in range(3):  # magic number, protocol version, system information
                    _Unpickler(file, path).load()
                return _with_arrays(_Unpickler(file, path).load())
        with zipfile.ZipFile(path) as archive:
            (name,) = [each for each in archive.namelist() if each.endswith("/data.pkl")]
            with archive.open(name) as file:
                return _with_arrays(_Unpickler(file, path).load())


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (_Refused, OSError):
        raise
    except Exception as error:  # a damaged pickle may raise anything
        why = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path} was cut short or altered: it can't be unpickled ({why})"
        ) from None
