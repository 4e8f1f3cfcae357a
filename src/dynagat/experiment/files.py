"""write_whole: a file as a whole, or as it was before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """A text, as `write_through` writes."""
    write_through(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_through(path: Path, write: Callable[[Path], object]) -> None:
    """Written under another name and then renamed, so that no half of a file is ever seen."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        os.chmod(temporary, 0o644)  # mkstemp's files are the owner's alone
        os.replace(temporary, path)
    except OSError as error:  # it may name the other name, or none
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
