"""Readers of cells: numbers, booleans, dates and text.

A reader takes a column of a block and returns float64 with nan for empty cells, or None if some
cell holds something else. Text cells that are only NA, N/A, NaN, null or none are empty as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as arrow_compute
from pyarrow import types

compute: Any = (
    arrow_compute  # its functions are created at import, so type checkers don't know them
)

_WORDS = ("", "na", "n/a", "nan", "null", "none")
MISSING = pa.array(sorted({form(word) for word in _WORDS for form in (str, str.upper, str.title)}
                          | {"NaN"}))  # fmt: skip
ZONE = r"(?:Z|[+-]\d{2}:?\d{2})$"
DAY = 86_400e6  # microseconds
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?)?$"
BOOLEAN = r"^(?i:true|false)$"

Reader = Callable[[pa.Array], "np.ndarray | None"]


def read_numbers(cells: pa.Array) -> np.ndarray | None:
    if types.is_string(cells.type):
        numbers = try_cast(cells, pa.float64())
        return _floats(cells) if numbers is None else _numpy(numbers)
    if types.is_integer(cells.type) or types.is_floating(cells.type):
        return _numpy(compute.cast(cells, pa.float64(), safe=False))
    return None


def read_booleans(cells: pa.Array) -> np.ndarray | None:
    if types.is_boolean(cells.type):
        return _numpy(cells.cast(pa.float64()))
    if not types.is_string(cells.type):
        return None
    text = present(cells)
    codes = compute.index_in(compute.utf8_lower(text), value_set=pa.array(["false", "true"]))
    return None if codes.null_count > text.null_count else _numpy(codes.cast(pa.float64()))


def read_dates(cells: pa.Array) -> np.ndarray | None:
    """Days since 1970 of ISO 8601 dates and times; those without a time zone are read as UTC."""
    if types.is_string(cells.type):
        times = _timestamps(present(cells))
    else:
        times = cells if types.is_timestamp(cells.type) else None
    return None if times is None else _numpy(times.cast(pa.int64()).cast(pa.float64(), False)) / DAY


READERS: dict[str, Reader] = {"number": read_numbers, "boolean": read_booleans, "date": read_dates}
FORMS = {"number": NUMBER, "boolean": BOOLEAN, "date": DATE}
NOUNS = {"number": "numbers", "boolean": "true or false", "date": "dates"}


def present(cells: pa.Array) -> pa.Array:
    """Text without surrounding blanks, null where a cell is empty."""
    trimmed = compute.utf8_trim_whitespace(cells)
    empty = compute.is_in(trimmed, value_set=MISSING)
    return compute.if_else(empty, pa.scalar(None, pa.string()), trimmed)


def as_text(cells: pa.Array) -> pa.Array:
    """Cells of any type as text, null where they are empty."""
    if types.is_floating(cells.type):
        numbers = compute.if_else(compute.is_nan(cells), pa.scalar(None, cells.type), cells)
        return _float_text(numbers)
    return present(cells if types.is_string(cells.type) else cells.cast(pa.string()))


def is_sound(values: np.ndarray | None) -> bool:
    return values is not None and not np.isinf(values).any()


def first_unsound(cells: pa.Array, read: Reader) -> int:
    """The row of the first cell that the reader can't read, or that is infinite; by bisection."""
    start, count = 0, len(cells)
    while count > 1:
        half = count // 2
        if is_sound(read(cells.slice(start, half))):
            start, count = start + half, count - half
        else:
            count = half
    return start


def kinds_of(values: pa.Array) -> np.ndarray:
    """The index in FORMS of each text, len(FORMS) for any other text, and -1 for an empty one."""
    kinds = np.full(len(values), len(FORMS), np.int64)
    trimmed = present(values)
    for kind, form in enumerate(FORMS.values()):
        matched = compute.match_substring_regex(trimmed, form).fill_null(False)
        kinds[np.asarray(matched)] = kind
    kinds[np.asarray(trimmed.is_null())] = -1
    return kinds


def try_cast(cells: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """None if a cell can't be cast. A sample is tried first, since failures are slow."""
    try:
        if len(cells) > 1024:
            few = np.linspace(0, len(cells) - 1, 64).astype(np.int64)
            cells.take(pa.array(few)).cast(kind)
        return cells.cast(kind)
    except pa.ArrowInvalid:
        return None


def _floats(cells: pa.Array) -> np.ndarray | None:
    numbers = try_cast(present(cells), pa.float64())
    return None if numbers is None else _numpy(numbers)


def _timestamps(cells: pa.Array) -> pa.Array | None:
    """Times in UTC; those with a time zone are cast separately, since Arrow has a type for them."""
    zoned = compute.match_substring_regex(cells, r"\d:\d\d.*" + ZONE)
    nothing = pa.scalar(None, pa.string())
    local = try_cast(compute.if_else(zoned, nothing, cells), pa.timestamp("us"))
    exact = try_cast(compute.if_else(zoned, cells, nothing), pa.timestamp("us", "UTC"))
    if local is None or exact is None:
        return None
    return compute.coalesce(local, exact.cast(pa.timestamp("us")))


def _float_text(numbers: pa.Array) -> pa.Array:
    """Floats as text; whole numbers without ".0", like integers."""
    text = numbers.cast(pa.string())
    return compute.replace_substring_regex(text, r"\.0$", "")


def _numpy(numbers: pa.Array) -> np.ndarray:
    if numbers.null_count:
        numbers = compute.fill_null(numbers, np.nan)
    return np.asarray(numbers)
