"""Fill a real file system (tmpfs, which needs root) during `data import` and `compare`.

python -m tests.trials.full_disk --sizes 20
"""

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynagat.data.store import open_graph
from tests.trials.commands import QUICK, end, start, write_tables
from tests.trials.kills import leftovers, metrics


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(["mount", "-t", "tmpfs", "none", place], capture_output=True)
        if done.returncode == 0:
            subprocess.run(["umount", place], check=True)
        return done.returncode == 0


@contextmanager
def small_disk(place: Path, kilobytes: int) -> Iterator[Path]:
    place.mkdir()
    options = ["-o", f"size={kilobytes}k"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


def fill(folder: Path, words: list[str], sizes: list[int]) -> list[int]:
    """The exit codes on disks of these sizes in KB: 0, or 2 with one sentence and nothing left."""
    codes = []
    for size in sizes:
        with small_disk(folder / "disk", size) as disk:
            os.environ["DYNAGAT_CACHE"] = str(disk / "cache")
            code = end(start([*words, *out_of(words, disk)], folder / "log"))
            text = (folder / "log").read_text()
            assert code in (0, 2), text
            check_disk(disk, code, text)
            codes.append(code)
    return codes


def out_of(words: list[str], disk: Path) -> list[str]:
    return ["--out", str(disk / "out")] if words[0] == "compare" else ["--name", "mine"]


def check_disk(disk: Path, code: int, text: str) -> None:
    if code == 2:
        (message,) = [line for line in text.splitlines() if line.startswith("dynagat: ")]
        assert "No space left" in message or "disk is full" in message, message
    assert leftovers(disk) == []
    for listing in disk.rglob("arrays.json"):
        if listing.parent.name in ("mine", "graph"):
            open_graph(listing.parent, verify=True)
    if (disk / "out" / "records.sqlite").exists() and code == 0:
        assert len(metrics(disk / "out")) == 4


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, default=20)
    count = parser.parse_args().sizes
    with tempfile.TemporaryDirectory() as place:
        tables = write_tables(Path(place), 2000)
        for words, largest in [(["data", "import"], 300), (["compare"], 800)]:
            sizes = [largest * n // (count + 1) for n in range(1, count + 1)]
            more = QUICK if words == ["compare"] else []
            codes = fill(Path(place), [*words, *tables, *more], sizes)
            full = sum(code == 2 for code in codes)
            print(f"{' '.join(words)}: {len(codes)} disks, {full} too small, nothing half written")
