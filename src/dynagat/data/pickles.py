"""Safe reading of pickle files: only arrays, sparse matrices, lists and dictionaries."""

from __future__ import annotations

import pickle
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np


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
        dense = np.zeros(self.shape, np.float32)
        row = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        np.add.at(dense, (row, self.indices), self.data)
        return dense


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":  # the only one that Python writes; other codecs may run code
        raise pickle.UnpicklingError(f"it encodes bytes as {encoding!r}")
    return text.encode("latin1")


_reconstruct = np.empty(0).__reduce__()[0]  # its module differs between numpy versions
KNOWN: dict[tuple[str, str], Any] = {
    ("scipy.sparse.csr", "csr_matrix"): SparseRows,
    ("scipy.sparse._csr", "csr_matrix"): SparseRows,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
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
        return _Unpickler(file, path).load()


def read_torch_pickle(path: Path) -> Any:
    """The same for a file of numpy arrays that torch.save wrote, as a zip or in the old format.

    torch.load(weights_only=True) reads only pickle protocol 2, but OGB uses others as well.
    """
    with _explain_errors(path):
        if not zipfile.is_zipfile(path):
            with open(path, "rb") as file:
                for _ in range(3):  # magic number, protocol version, system information
                    _Unpickler(file, path).load()
                return _Unpickler(file, path).load()
        with zipfile.ZipFile(path) as archive:
            (name,) = [each for each in archive.namelist() if each.endswith("/data.pkl")]
            with archive.open(name) as file:
                return _Unpickler(file, path).load()


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
