"""Flip bytes in every file of a stored graph: each flip is an error when the graph is opened.

python -m tests.trials.flips --flips 300
"""

import argparse
import random
import tempfile
from contextlib import suppress
from pathlib import Path

from dynagat.data import read_tables
from dynagat.data.arrays import FolderError
from dynagat.data.statistics import describe
from dynagat.data.store import open_graph
from tests.trials.commands import write_tables


def flip(folder: Path, flips: int) -> tuple[int, int]:
    """Flip this many bytes of each file, one at a time; returns the numbers of files and flips."""
    write_tables(folder, 200)
    stored = read_tables(folder / "e.csv", folder / "n.csv", target="label", folder=folder / "g")
    draw, done = random.Random(0), 0
    files = sorted(path for path in folder.joinpath("g").rglob("*") if path.is_file())
    for path in files:
        whole = path.read_bytes()
        for at in draw.sample(range(len(whole)), min(flips, len(whole))):
            changed = bytes([whole[at] ^ (1 << draw.randrange(8))])
            path.write_bytes(whole[:at] + changed + whole[at + 1 :])
            assert is_refused(folder / "g"), f"byte {at} of {path} may be flipped"
            with suppress(ValueError):  # without checksums, it must not crash
                data = open_graph(folder / "g", verify=False)
                data.graph()
                describe(data)
            done += 1
        path.write_bytes(whole)
    assert open_graph(folder / "g", verify=True).num_nodes == stored.num_nodes
    return len(files), done


def is_refused(folder: Path) -> bool:
    try:
        open_graph(folder)
    except FolderError:
        return True
    return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=300, help="per file")
    with tempfile.TemporaryDirectory() as place:
        files, flips = flip(Path(place), parser.parse_args().flips)
    print(f"{flips} flips in {files} files, all refused")
