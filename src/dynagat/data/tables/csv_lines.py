"""A slow and exact reader of CSV files, for the header, line numbers and error messages.

table_file.py reads the rows with Arrow, which is fast, and uses this module if that fails.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, cast

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
END = "\ue000 the end \ue000"  # added as a last line: it joins the last row if a quote is open
SAMPLE = 50  # lines from which the separator is inferred
TOO_LONG = "a field has more than 131,072 characters; is a quote left open?"  # Python's limit
MAX_LINE = 1 << 24  # characters of a line
MAX_COLUMNS = 100_000
GZIP = b"\x1f\x8b"  # first bytes of such a file
OTHER_FORMATS = {
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
    b"PK": "is a zip or spreadsheet file; save the table as CSV",
}


class TableError(ValueError):
    """A table can't be read. The message names the file and, where known, the line and column."""


def shown(value: object) -> str:
    """A value in quotes, shortened if it is long."""
    text = repr(value if isinstance(value, str) else str(value))
    return text if len(text) <= 60 else f"{text[:56]}...{text[0]}"


def is_gzip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(GZIP)) == GZIP


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if it is a gzip file."""
    return cast("IO[bytes]", gzip.open(path, "rb") if is_gzip(path) else open(path, "rb"))


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into TableErrors."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TableError(f"{path} was cut short or altered: it can't be decompressed") from None
    except OSError as error:
        raise TableError(f"{path} can't be read: {error.strerror or error}") from None


def read_header(path: Path) -> tuple[str, list[str]]:
    """The separator, and the names of the columns."""
    with explain_errors(path), open_bytes(path) as file:
        _check_form(path, file.read(2))
    sample = list(islice(_sound_lines(path), SAMPLE))
    numbered = [(number, line) for number, line in sample if line.strip("\r\n")]
    if not numbered:
        raise TableError(f"{path} is empty; it must have a header and rows")
    place, lines = f"{path}, line {numbered[0][0]}", [line for _, line in numbered]
    tables = {each: _first_rows(lines, each, len(sample) == SAMPLE) for each in SEPARATORS}
    separator = _separator(place, lines[0], tables)
    if not tables[separator]:
        raise TableError(f"{place}: {TOO_LONG}")
    _check_names(place, tables[separator][0])
    return separator, tables[separator][0]


def read_records(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The line at which each row begins, and its fields; the header comes first.

    Raises:
        TableError: for the first row that is not UTF-8, has a NUL byte or an open quote, or does
            not have as many fields as the header.
    """
    lines = chain((line for _, line in _sound_lines(path)), [END])
    reader, width, line = csv.reader(lines, delimiter=separator), 0, 1
    while True:
        try:
            fields = next(reader)
        except csv.Error:
            raise TableError(f"{path}, line {line}: {TOO_LONG}") from None
        if fields == [END]:
            return
        if fields and END in fields[-1]:
            raise TableError(f"{path}, line {line}: a quote is opened and never closed")
        width = width or len(fields)
        if len(fields) not in (0, width):
            row = shown(separator.join(fields))
            counts = f"{_counted(len(fields), 'field')}, but the header has {width}"
            raise TableError(f"{path}, line {line}: {row} has {counts}")
        if fields:
            yield line, fields
        line = reader.line_num + 1


def line_of(path: Path, separator: str, row: int) -> int:
    """The line at which a row begins; the first row after the header is row 0."""
    record = next(islice(read_records(path, separator), row + 1, None), None)
    if record is None:
        raise TableError(f"{path} was changed while it was read: row {row + 1} is gone")
    return record[0]


def _sound_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; an error for the first line that is not UTF-8 text."""
    with explain_errors(path), open_bytes(path) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
        lines = iter(lambda: text.readline(MAX_LINE + 1), "")
        for number, line in enumerate(lines, start=1):
            if len(line) > MAX_LINE:
                raise TableError(
                    f"{path}, line {number}: has more than {MAX_LINE:,} characters; "
                    "is it a table of text, with a line per row?"
                )
            if "\0" in line:
                raise TableError(
                    f"{path}, line {number}: contains a NUL byte; it is not a text file"
                )
            if not line.isascii():
                _check_decoded(path, number, line)
            yield number, line


def _check_decoded(path: Path, number: int, line: str) -> None:
    escaped = next((each for each in line if "\udc80" <= each <= "\udcff"), None)
    if escaped is not None:
        byte = f"0x{ord(escaped) - 0xDC00:02x}"
        raise TableError(
            f"{path}, line {number}: contains byte {byte}, which is not UTF-8; "
            "save the file as UTF-8"
        )


def _check_form(path: Path, start: bytes) -> None:
    if start in OTHER_FORMATS:
        raise TableError(f"{path} {OTHER_FORMATS[start]}")


def _separator(place: str, header: str, tables: Mapping[str, list[list[str]]]) -> str:
    """The separator that splits the header and the first rows into the same number of columns."""
    widths = {each: [len(row) for row in rows] for each, rows in tables.items() if rows}
    likely = [each for each, counts in widths.items() if counts[0] > 1]
    even = [each for each in likely if len(set(widths[each])) == 1]
    best = sorted(even or likely, key=lambda each: -widths[each][0]) or [","]
    if len(best) > 1 and widths[best[0]][0] == widths[best[1]][0]:
        names = " and ".join(SEPARATORS[each] for each in best[:2])
        raise TableError(
            f"{place}: the separator is ambiguous: {names} both split {shown(header)} into "
            f"{widths[best[0]][0]} columns; put quotes around names that contain one of them"
        )
    return best[0]


def _first_rows(lines: Sequence[str], separator: str, is_cut: bool) -> list[list[str]]:
    """The rows of the first lines, up to the first field that is too long."""
    rows = []
    try:
        rows += filter(None, csv.reader(lines, delimiter=separator))
    except csv.Error:
        return rows
    return rows[:-1] if is_cut and len(rows) > 1 else rows  # the last may be incomplete


def check_num_columns(place: str, names: Sequence[str]) -> None:
    if len(names) > MAX_COLUMNS:
        raise TableError(f"{place}: {len(names):,} columns are too many; at most {MAX_COLUMNS:,}")


def _check_names(place: str, names: Sequence[str]) -> None:
    check_num_columns(place, names)
    if all(_is_number(name) for name in names):
        row = shown(",".join(names))
        raise TableError(f"{place}: must be a header with the names of the columns, but is {row}")
    for number, name in enumerate(names, start=1):
        if not name.strip():
            raise TableError(f"{place}: column {number} has no name")
    check_distinct(place, names)


def check_distinct(place: str, names: Sequence[str]) -> None:
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise TableError(f"{place}: two columns are named {shown(name)}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
