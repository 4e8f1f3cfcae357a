"""opened: the SQLite file in which Optuna keeps trials, for one tuning process at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dynagat.experiment.store import WAIT_SECONDS, StoreError
from dynagat.files import lock

if TYPE_CHECKING:
    from optuna.storages import RDBStorage


@contextmanager
def opened(path: Path) -> Iterator[RDBStorage]:
    """Optuna's storage, locked: a second process would count running trials as lost."""
    if path.is_dir():
        raise StoreError(f"storage {path} is a folder, not a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as file:
        try:
            lock(file, wait=False)
        except BlockingIOError:
            message = f"storage {path} is in use by another process; wait, or name another file"
            raise StoreError(message) from None
        storage = connect(path)
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()


def connect(path: Path) -> RDBStorage:
    """Optuna's storage in an SQLite file, which is created if missing."""
    try:
        import optuna
        from sqlalchemy import URL
        from sqlalchemy.exc import SQLAlchemyError
    except ModuleNotFoundError as error:
        message = f"tuning needs {error.name}; pip install 'dynagat[suite]' installs it"
        raise StoreError(message) from None

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    _check(path)
    url = URL.create("sqlite", database=str(path)).render_as_string()
    options = {"connect_args": {"timeout": WAIT_SECONDS}}
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=options)
    except (SQLAlchemyError, RuntimeError) as error:  # or of another version of Optuna
        why = str(error).splitlines()[0]
        raise StoreError(f"storage {path} can't be used: {why}") from None


def _check(path: Path) -> None:
    """Refuse a file that Optuna did not write, unless it is empty."""
    try:
        with closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as database:
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if names and not {"studies", "version_info"} <= names:
                raise StoreError(f"storage {path} is a database of another program")
            database.execute("PRAGMA journal_mode = WAL")
    except sqlite3.DatabaseError as error:
        raise StoreError(f"storage {path} can't be used: {error}") from None
