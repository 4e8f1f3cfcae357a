"""Pickled arrays, sparse matrices, lists and dictionaries, read without Python's unpickler.

The unpickler trusts its file: a few bytes can make it call functions, use raw bytes as pointers,
overflow the stack or fill the memory. Here `pickletools` only splits the file into instructions,
and the reader below knows those that such values need. A name in the file never leads to an import.
"""

from __future__ import annotations

import math
import os
import pickletools
import re
import reprlib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from dynagat.data import csr

DTYPE = re.compile(r"b1|[iu][1248]|f[248]")
MAX_BITS = 1024  # of integers; torch's files start with one of 80
PLAIN = (int, float, str, type(None))  # types of keys


class SparseRows:
    """A pickled scipy.sparse.csr_matrix."""

    parts: tuple[Any, ...] = (None,) * 4

    def build(self, state: Any) -> SparseRows:
        names = ("data", "indices", "indptr", "_shape")
        if not isinstance(state, dict) or not all(name in state for name in names):
            raise ValueError(f"a sparse matrix must have {', '.join(names)}")
        self.parts = tuple(state[name] for name in names)
        return self

    def dense(self) -> np.ndarray:
        """[rows, columns] float32"""
        return csr.dense(*self.parts)


class _Dtype:
    """A numpy.dtype: a plain numeric type, by its name."""

    def __init__(self, name: Any = None, *_: Any) -> None:
        if not isinstance(name, str) or not DTYPE.fullmatch(name):
            raise ValueError(f"it holds an array of {reprlib.repr(name)} instead of numbers")
        self.numpy = np.dtype(name)

    def build(self, state: Any) -> _Dtype:
        """Only the byte order counts."""
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "|", "="):
            raise ValueError(f"it holds an array of unknown byte order {reprlib.repr(order)}")
        self.numpy = self.numpy.newbyteorder(order)
        return self


class _Array:
    """An array that has no content yet; `build` checks its state and returns a numpy array."""

    built: np.ndarray | None = None

    def build(self, state: Any) -> np.ndarray:
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], _Dtype):
            raise ValueError("it holds an array in an unknown form")
        _, shape, dtype, is_fortran, content = state
        if isinstance(content, str):  # of Python 2
            content = content.encode("latin1")
        if not isinstance(content, bytes):
            raise ValueError("it holds an array of objects instead of numbers")
        is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
        if not is_shape or max(shape, default=0) >= 2**48:
            raise ValueError(f"it holds an array of the impossible shape {reprlib.repr(shape)}")
        if math.prod(shape) * dtype.numpy.itemsize != len(content):
            raise ValueError(
                f"it holds {len(content)} bytes for an array of shape {reprlib.repr(shape)}"
            )
        flat = np.frombuffer(content, dtype.numpy).astype(dtype.numpy.newbyteorder("="))
        self.built = flat.reshape(shape, order="F" if is_fortran else "C")
        return self.built


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":  # the only one that Python writes
        raise ValueError(f"it encodes bytes as {encoding!r}")
    return text.encode("latin1")


@dataclass(frozen=True)
class _Name:
    """A function or class that the file names, and what makes its value here."""

    make: Callable[..., Any]


_ARRAY = _Name(lambda *_: _Array())
_SPARSE = _Name(lambda *_: SparseRows())
_LIST = _Name(lambda *_: [])
KNOWN: dict[tuple[str, ...], _Name] = {
    ("scipy.sparse.csr", "csr_matrix"): _SPARSE,
    ("scipy.sparse._csr", "csr_matrix"): _SPARSE,
    ("numpy.core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy", "ndarray"): _ARRAY,
    ("numpy", "dtype"): _Name(_Dtype),
    ("_codecs", "encode"): _Name(_encode),
    ("__builtin__", "bytes"): _Name(lambda: b""),  # of an empty array
    ("collections", "defaultdict"): _Name(lambda *_: {}),
    ("__builtin__", "list"): _LIST,
    ("builtins", "list"): _LIST,
}


@dataclass
class _Reader:
    """Follows the instructions of one pickle; `pickletools.dis` prints and explains them."""

    path: Path
    bytes_left: int  # an array may not hold more than the file: no array is built twice
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def read(self, file: IO[bytes]) -> Any:
        for opcode, argument, _ in pickletools.genops(file):
            self._follow(opcode.name, argument)
        return self.stack.pop()

    def _follow(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            if isinstance(argument, int) and argument.bit_length() > MAX_BITS:
                raise ValueError(f"it holds an integer of {argument.bit_length()} bits")
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _MEMO_PUTS:
            self.memo[len(self.memo) if argument is None else argument] = self.stack[-1]
        elif name in _MEMO_GETS:
            self.stack.append(self._remembered(argument))
        elif name in _TUPLES:
            self._push_tuple(_TUPLES[name])
        elif name in _FOLLOWED:
            _FOLLOWED[name](self, argument)
        elif name not in _IGNORED:
            raise ValueError(f"it has the instruction {name}, which no array needs")

    def _remembered(self, place: int) -> Any:
        value = self.memo[place]
        is_built = isinstance(value, _Array) and value.built is not None
        return value.built if is_built else value

    def _since_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def _push_tuple(self, size: int) -> None:
        values = self.stack[len(self.stack) - size :]
        if len(values) != size:
            raise ValueError("its stack is empty")
        del self.stack[len(self.stack) - size :]
        self.stack.append(tuple(values))

    def _mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def _name(self, text: str | None) -> None:
        """Push what is named "module name", or by two texts on the stack."""
        parts = text.split(" ") if text else [self.stack.pop(-2), self.stack.pop()]
        named = tuple(map(str, parts))
        if named not in KNOWN:
            known = "arrays, sparse matrices, lists and dictionaries"
            full = ".".join(named)[:80]
            raise _Refused(f"{self.path} holds a {full}, but may hold only {known}")
        self.stack.append(KNOWN[named])

    def _persistent(self, _: Any) -> None:
        raise _Refused(f"{self.path} holds torch tensors where numpy arrays are expected")

    def _call(self, _: Any) -> None:
        arguments, named = self.stack.pop(), self.stack.pop()
        if not isinstance(named, _Name):
            raise ValueError("it calls a value that is no function")
        self.stack.append(self._charged(named.make(*arguments)))

    def _build(self, _: Any) -> None:
        state, value = self.stack.pop(), self.stack.pop()
        if not isinstance(value, (SparseRows, _Dtype, _Array)):
            raise ValueError(f"it sets the state of a {type(value).__name__}")
        self.stack.append(self._charged(value.build(state)))

    def _charged(self, value: Any) -> Any:
        self.bytes_left -= len(value) if isinstance(value, bytes) else 0
        self.bytes_left -= value.nbytes if isinstance(value, np.ndarray) else 0
        if self.bytes_left < 0:
            raise ValueError("it holds more numbers than fit into it")
        return value

    def _push_list(self, _: Any) -> None:
        self.stack.append(self._since_mark())

    def _push_dict(self, _: Any) -> None:
        values = self._since_mark()
        self.stack.append({})
        self._set(values)

    def _set_item(self, _: Any) -> None:
        self._set([self.stack.pop(-2), self.stack.pop()])

    def _set(self, values: list[Any]) -> None:
        keys, target = values[::2], self.stack[-1]
        if not isinstance(target, dict) or not all(isinstance(key, PLAIN) for key in keys):
            raise ValueError("it holds a dictionary whose keys are neither texts nor numbers")
        target.update(zip(keys, values[1::2], strict=True))

    def _append(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ValueError(f"it appends to a {type(self.stack[-1]).__name__}")
        self.stack[-1].extend(values)


_STRINGS = "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8"
_NUMBERS = "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT"
_VALUES = {*_STRINGS.split(), *_NUMBERS.split(), "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MEMO_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_MEMO_GETS = {"GET", "BINGET", "LONG_BINGET"}
_IGNORED = {"PROTO", "FRAME", "STOP"}
_FOLLOWED: dict[str, Callable[[_Reader, Any], None]] = {
    "MARK": _Reader._mark,
    "GLOBAL": _Reader._name,
    "STACK_GLOBAL": _Reader._name,
    "REDUCE": _Reader._call,
    "NEWOBJ": _Reader._call,
    "BUILD": _Reader._build,
    "LIST": _Reader._push_list,
    "DICT": _Reader._push_dict,
    "SETITEM": _Reader._set_item,
    "PERSID": _Reader._persistent,
    "BINPERSID": _Reader._persistent,
    "EMPTY_LIST": lambda reader, _: reader.stack.append([]),
    "EMPTY_DICT": lambda reader, _: reader.stack.append({}),
    "TUPLE": lambda reader, _: reader.stack.append(tuple(reader._since_mark())),
    "APPEND": lambda reader, _: reader._append([reader.stack.pop()]),
    "APPENDS": lambda reader, _: reader._append(reader._since_mark()),
    "SETITEMS": lambda reader, _: reader._set(reader._since_mark()),
}


class _Refused(ValueError):
    """The message names the file already."""


def read_pickle(path: Path) -> Any:
    """The content of a file pickled by Python 2 or 3; an error if it holds anything but KNOWN."""
    with _explain_errors(path), open(path, "rb") as file:
        return _Reader(path, 2 * os.fstat(file.fileno()).st_size).read(file)


def read_torch_pickle(path: Path) -> Any:
    """The same for a file of numpy arrays that torch.save wrote, as a zip or in the old format.

    torch.load(weights_only=True) reads only pickle protocol 2, but OGB uses others as well.
    """
    size = path.stat().st_size
    with _explain_errors(path):
        if not zipfile.is_zipfile(path):
            with open(path, "rb") as file:
                for _ in range(3):  # magic number, protocol version, system information
                    _Reader(path, 2 * size).read(file)
                return _Reader(path, 2 * size).read(file)
        with zipfile.ZipFile(path) as archive:
            (member,) = [each for each in archive.infolist() if each.filename.endswith("/data.pkl")]
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
                raise ValueError("torch.save does not compress, but its content is compressed")
            with archive.open(member) as file:
                return _Reader(path, 2 * size).read(file)


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (_Refused, OSError):
        raise
    except Exception as error:  # a damaged pickle may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(
            f"{path} was cut short or altered: it can't be unpickled ({why})"
        ) from None
