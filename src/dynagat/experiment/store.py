"""Store: one SQLite file of records, append-only. What was added survives a kill at any moment.

Write-ahead logging lets other processes read while one writes. A record goes in by one transaction,
so a store holds whole records only.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from dynagat.experiment.record import Record

APPLICATION = 0x64796E61  # "dyna", in the file's header
VERSION = 1
PATIENCE = 60  # seconds to wait for another process
WEIGHTS = """CREATE TABLE IF NOT EXISTS weights (
       key TEXT PRIMARY KEY REFERENCES record (key), state BLOB NOT NULL
     ) STRICT"""  # apart from the records, which are read as a whole; older stores have none
SCHEMA = (
    """CREATE TABLE record (
         number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, benchmark TEXT NOT NULL,
         line TEXT NOT NULL
       ) STRICT""",
    "CREATE INDEX record_of_benchmark ON record (benchmark)",
    """CREATE TRIGGER record_stays BEFORE UPDATE ON record
       BEGIN SELECT RAISE(ABORT, 'records never change'); END""",
    """CREATE TRIGGER record_remains BEFORE DELETE ON record
       BEGIN SELECT RAISE(ABORT, 'records never go'); END""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


class StoreError(Exception):
    """A store that can't be used, in a sentence."""


class Store:
    """Records by their key, in the order in which they were added.

    Args:
        path: the file; it is made, with its folder, if it is not there.
        must_exist: whether to refuse to make it.
    """

    def __init__(self, path: Path | str, *, must_exist: bool = False) -> None:
        self.path = Path(path)
        with self._told():
            if must_exist and not self.path.exists():
                raise StoreError(f"store {self.path} does not exist; `dynagat run` makes it")
            if self.path.is_dir():
                raise StoreError(f"store {self.path} is a folder, not a file")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        try:
            with self._told():
                self._open()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def add(self, record: Record) -> bool:
        """Whether it was new; the same run is never stored twice. Its weights are kept with it."""
        with self._transaction():
            return self._insert(record)

    def _insert(self, record: Record) -> bool:
        row = (record.key, record.benchmark, record.to_json())
        with self._told():
            done = self._database.execute(
                "INSERT INTO record (key, benchmark, line) VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO NOTHING",
                row,
            )
            if done.rowcount == 1 and record.weights is not None:
                self._database.execute(WEIGHTS)
                row = (record.key, record.weights)
                self._database.execute("INSERT INTO weights (key, state) VALUES (?, ?)", row)
        return done.rowcount == 1

    def weights(self, key: str) -> bytes | None:
        """Those of a run, as torch saved them; None if the record came without them."""
        ask = self._database.execute
        with self._told():
            there = ask("SELECT count(*) FROM sqlite_master WHERE name = 'weights'").fetchone()[0]
            query = "SELECT state FROM weights WHERE key = ?"
            row = ask(query, (key,)).fetchone() if there else None
        return None if row is None else row[0]

    def keys(self) -> set[str]:
        with self._told():
            return {key for (key,) in self._database.execute("SELECT key FROM record")}

    def get(self, key: str) -> Record | None:
        with self._told():
            found = self._database.execute("SELECT line FROM record WHERE key = ?", (key,))
            row = found.fetchone()
        try:
            return None if row is None else Record.from_json(row[0])
        except ValueError as error:
            raise StoreError(f"store {self.path} was altered: {error}") from None

    def records(self, benchmarks: Iterable[str] = ()) -> list[Record]:
        """All, or those of the benchmarks named."""
        names = list(benchmarks)
        where = f" WHERE benchmark IN ({', '.join('?' * len(names))})" if names else ""
        query = f"SELECT line FROM record{where} ORDER BY number"
        with self._told():
            return [Record.from_json(line) for (line,) in self._database.execute(query, names)]

    def import_lines(self, lines: Iterable[str], source: str) -> int:
        """Add all records of JSON lines, or none if one of them is bad; how many were new."""
        records = list(read_lines(lines, source))
        with self._transaction():
            return sum([self._insert(record) for record in records])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of a block, or nothing."""
        with self._told():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # a full disk has ended it already
                    self._database.execute("ROLLBACK")
                raise

    def _open(self) -> None:
        """Check that the file is ours, or make it ours if it is empty."""
        ask = self._database.execute
        tables = ask("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = ask("PRAGMA application_id").fetchone()[0]
        version = ask("PRAGMA user_version").fetchone()[0]
        if tables == 0 and application == 0:
            self._make()
        elif application != APPLICATION:
            raise StoreError(f"store {self.path} is a database of another program")
        elif version != VERSION:
            raise StoreError(
                f"store {self.path} is of version {version}, but this dynagat reads {VERSION}; "
                "export its records with the dynagat that wrote it, and import them into a new one"
            )

    def _make(self) -> None:
        self._write_ahead()
        self._database.execute("BEGIN EXCLUSIVE")
        try:
            if not self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in SCHEMA:
                    self._database.execute(statement)
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _write_ahead(self) -> None:
        """SQLite does not wait for others that make the same change, so we do."""
        latest = time.monotonic() + PATIENCE
        while True:
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > latest:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Trouble with the file, in a sentence."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "readonly" in str(error) or "unable to open" in str(error):
                raise StoreError(f"store {self.path} can't be written: {error}") from None
            if "not a database" in str(error):
                raise StoreError(f"store {self.path} is not a database of dynagat's") from None
            if "disk is full" in str(error):
                raise StoreError(
                    f"store {self.path} can't grow, for the disk is full; "
                    "the records in it are safe, and the same command goes on from there"
                ) from None
            raise StoreError(f"store {self.path} can't be used: {error}") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(f"store {self.path} can't be opened: {why}") from None


def read_lines(lines: Iterable[str], source: str) -> Iterator[Record]:
    """The records of JSON lines; a bad line is told by its number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield Record.from_json(line)
        except (ValueError, TypeError) as error:
            raise StoreError(f"{source}, line {number}: {error}") from None
