"""Store: one append-only SQLite file of records. Added records survive a kill at any moment.

Write-ahead logging lets other processes read while one writes. A record is added in one
transaction, so a store holds whole records only.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from dynagat.experiment.record import Record

DEFAULT_STORE = Path("dynagat.sqlite")
APPLICATION = 0x64796E61  # "dyna", in the file's header
VERSION = 1
LOG_INDEX_BYTES = 1 << 15  # the least that SQLite allocates for it
WAIT_SECONDS = 60  # for another process that holds the file
WEIGHTS = """CREATE TABLE IF NOT EXISTS weights (
       key TEXT PRIMARY KEY REFERENCES record (key), state BLOB NOT NULL
     ) STRICT"""  # in a table of their own, since records are read often; older stores lack it
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
    """A store that can't be used; the message says why."""


class Store:
    """Records by key, in the order in which they were added.

    Args:
        path: the file; it and its folder are created if missing.
        must_exist: whether a missing file is an error instead.
    """

    def __init__(self, path: Path | str, *, must_exist: bool = False) -> None:
        self.path = Path(path)
        with self._explain_errors():
            if must_exist and not self.path.exists():
                raise StoreError(f"store {self.path} does not exist; `dynagat run` creates it")
            if self.path.is_dir():
                raise StoreError(f"store {self.path} is a folder, not a file")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
        try:
            with self._explain_errors():
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
        """Add a record with its weights. False if the store has it already."""
        with self._transaction():
            return self._insert(record)

    def _insert(self, record: Record) -> bool:
        row = (record.key, record.benchmark, record.to_json())
        with self._explain_errors():
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
        """Saved weights of a run; None if the record was imported without them."""
        ask = self._database.execute
        with self._explain_errors():
            has_table = ask("SELECT 1 FROM sqlite_master WHERE name = 'weights'").fetchone()
            query = "SELECT state FROM weights WHERE key = ?"
            row = ask(query, (key,)).fetchone() if has_table else None
        return None if row is None else row[0]

    def keys(self) -> set[str]:
        with self._explain_errors():
            return {key for (key,) in self._database.execute("SELECT key FROM record")}

    def get(self, key: str) -> Record | None:
        with self._explain_errors():
            rows = self._database.execute("SELECT line FROM record WHERE key = ?", (key,))
            row = rows.fetchone()
        try:
            return None if row is None else Record.from_json(row[0])
        except ValueError as error:
            raise StoreError(f"store {self.path} was altered: {error}") from None

    def records(self, benchmarks: Iterable[str] = ()) -> list[Record]:
        """All records, or those of some benchmarks."""
        names = list(benchmarks)
        where = f" WHERE benchmark IN ({', '.join('?' * len(names))})" if names else ""
        query = f"SELECT line FROM record{where} ORDER BY number"
        with self._explain_errors():
            return [Record.from_json(line) for (line,) in self._database.execute(query, names)]

    def import_lines(self, lines: Iterable[str], source: str) -> int:
        """Add all records of JSON lines, or none if a line is bad; returns how many were new."""
        records = list(read_lines(lines, source))
        with self._transaction():
            return sum([self._insert(record) for record in records])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit all of a block, or nothing."""
        with self._explain_errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # a full disk has already ended it
                    self._database.execute("ROLLBACK")
                raise

    def _open(self) -> None:
        """Check that the file is a store; an empty one becomes one."""
        ask = self._database.execute
        tables = ask("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = ask("PRAGMA application_id").fetchone()[0]
        version = ask("PRAGMA user_version").fetchone()[0]
        if tables == 0 and application == 0:
            self._create()
        elif application != APPLICATION:
            raise StoreError(f"store {self.path} is a database of another program")
        elif version != VERSION:
            raise StoreError(
                f"store {self.path} is of version {version}, but this dynagat reads {VERSION}; "
                "export its records with the dynagat that wrote it, and import them into a new one"
            )

    def _create(self) -> None:
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
        """Retry while other processes do the same: SQLite does not wait for them."""
        latest = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > latest:
                    raise
                time.sleep(0.01)

    def _lacks_space(self, error: sqlite3.DatabaseError) -> bool:
        """SQLite calls it an I/O error if there is no space for its index of the log."""
        free = shutil.disk_usage(self.path.parent).free
        return "disk I/O error" in str(error) and free < LOG_INDEX_BYTES

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the system into a StoreError."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "readonly" in str(error) or "unable to open" in str(error):
                raise StoreError(f"store {self.path} can't be written: {error}") from None
            if "not a database" in str(error):
                raise StoreError(f"store {self.path} is not a database of dynagat") from None
            if "disk is full" in str(error) or self._lacks_space(error):
                raise StoreError(
                    f"store {self.path} can't grow: the disk is full; "
                    "its records are safe, and the same command continues from there"
                ) from None
            raise StoreError(f"store {self.path} can't be used: {error}") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(f"store {self.path} can't be opened: {why}") from None


def read_lines(lines: Iterable[str], source: str) -> Iterator[Record]:
    """The records of JSON lines; an error names the number of the bad line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield Record.from_json(line)
        except (ValueError, TypeError) as error:
            raise StoreError(f"{source}, line {number}: {error}") from None
