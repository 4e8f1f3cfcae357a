"""Chunks: files of 100 records, and a compact copy of each, which is read instead.

chunk-00000.jsonl.gz has the records as text; chunk-00000.npz, beside it, is made from it when it is
first read, and again whenever the checksum that it holds is not that of the text.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dynagat.data.programs.records import ProgramError, ProgramGraph, read_record
from dynagat.files import checksum, write_through
from dynagat.npz_file import read_arrays

ENDING = ".jsonl.gz"
VERSION = 2  # of the compact form
SOURCE = "source"  # name of the array with the stamp
EVIDENCE = ("candidates", "uses", "distance")
FIELDS = tuple(each.name for each in fields(ProgramGraph))
FEW = 8  # chunks that are made compact without starting processes


def read_text(path: Path) -> str:
    """The text of a gzip file; a ProgramError names the file if it is damaged."""
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ProgramError(f"{path} must be a whole gzip file, but is damaged: {error}") from None
    except UnicodeDecodeError as error:
        raise ProgramError(f"{path} must be text in UTF-8, but byte {error.start} is not") from None


def read_lines(path: Path, language: str) -> Iterator[ProgramGraph]:
    """The graphs of a chunk, from its text; a ProgramError names the file and the line."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        try:
            if line:
                yield read_record(_loaded(line), language)
        except ProgramError as error:
            raise ProgramError(f"{path}, line {number}: {error}") from None


def _loaded(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        raise ProgramError(f"must be JSON, but {getattr(error, 'msg', error)}") from None


def read_one(path: Path, number: int) -> Any:
    """The record of the graph with this number in a chunk, as it is in the text."""
    lines = (line for line in read_text(path).split("\n") if line)
    return json.loads(next(islice(lines, number, None)))


def read_chunk(path: Path, language: str) -> list[ProgramGraph]:
    """The graphs of a chunk, from its compact copy, which is made if need be."""
    return _unpacked(_compact(path, language, FIELDS), FIELDS)


def read_evidence(path: Path, language: str) -> list[dict[str, np.ndarray]]:
    """What each graph of a chunk has of EVIDENCE; the rest of the compact copy is not read."""
    arrays = _compact(path, language, EVIDENCE)
    return [dict(zip(EVIDENCE, each, strict=True)) for each in _slices(arrays, EVIDENCE)]


def make_compact(paths: Sequence[Path], language: str, workers: int) -> None:
    """Make the compact copies that are missing, in so many processes."""
    todo = [path for path in paths if not compact_path(path).exists()]
    make = partial(_write_copy, language=language)
    if workers < 2 or len(todo) <= FEW:
        for path in todo:
            make(path)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for _ in pool.map(make, todo):  # raises errors
            pass


def compact_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(ENDING) + ".npz")


def _compact(path: Path, language: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays of the compact copy, if it is that of the text as it is now; else of a new one."""
    wanted = {SOURCE, *names, *(f"num_{name}" for name in names)}
    stamp = _stamp(path, language)
    try:
        arrays = read_arrays(compact_path(path), wanted.__contains__)
        if np.array_equal(arrays.get(SOURCE, ()), stamp) and arrays.keys() == wanted:
            return arrays
    except (FileNotFoundError, ValueError):  # missing, or damaged
        pass
    return _make(path, language)


def _make(path: Path, language: str) -> dict[str, np.ndarray]:
    """Write the compact copy of a chunk; its arrays."""
    stamp = _stamp(path, language)
    arrays = _packed(list(read_lines(path, language))) | {SOURCE: stamp}

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]

    write_through(compact_path(path), write)
    return arrays


def _write_copy(path: Path, language: str) -> None:
    """Without a result, which processes would have to send."""
    _make(path, language)


def _stamp(path: Path, language: str) -> np.ndarray:
    """What a compact copy depends on."""
    return np.frombuffer(f"{VERSION} {language} {checksum(path)}".encode(), np.uint8)


def _packed(graphs: Sequence[ProgramGraph]) -> dict[str, np.ndarray]:
    """For each field the arrays of all graphs, one after the other, and their lengths."""
    arrays = {}
    for name in FIELDS:
        parts = [getattr(graph, name) for graph in graphs]
        arrays[f"num_{name}"] = np.array([len(part) for part in parts], np.int64)
        arrays[name] = _narrow(np.concatenate(parts)) if parts else np.zeros(0, np.uint8)
    return arrays


def _narrow(array: np.ndarray) -> np.ndarray:
    """As 16-bit numbers where they suffice."""
    fits = array.size and array.min() >= -(2**15) and array.max() < 2**15
    return array.astype(np.int16) if fits and array.itemsize > 2 else array


def _slices(
    arrays: dict[str, np.ndarray], names: Sequence[str]
) -> Iterator[tuple[np.ndarray, ...]]:
    """The arrays of each graph."""
    pieces = [np.split(arrays[name], arrays[f"num_{name}"].cumsum()[:-1]) for name in names]
    return zip(*pieces, strict=True) if len(arrays[f"num_{names[0]}"]) else iter(())


def _unpacked(arrays: dict[str, np.ndarray], names: Sequence[str]) -> list[ProgramGraph]:
    return [ProgramGraph(*each) for each in _slices(arrays, names)]
