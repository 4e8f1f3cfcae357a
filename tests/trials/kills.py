"""Kill `data import` and `compare` at random moments: all that is stored stays whole.

python -m tests.trials.kills --kills 100
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from dynagat.comparison import load_model
from dynagat.data.arrays import fingerprint
from dynagat.data.store import open_graph, store_folder, stored_names
from dynagat.experiment import Store
from dynagat.files import TEMPORARY
from tests.trials.commands import QUICK, Killer, finish, write_tables


def kill_imports(folder: Path, kills: int) -> int:
    """Replace a stored graph again and again; returns how many commands were killed."""
    os.environ["DYNAGAT_CACHE"] = str(folder / "cache")
    words = ["data", "import", *write_tables(folder, 20_000), "--name", "mine", "--replace"]
    kill, done = Killer(words, finish(words)), 0
    expected = fingerprint(store_folder() / "mine")
    while done < kills:
        done += kill()
        assert stored_names() == ["mine"]
        assert fingerprint(open_graph("mine", verify=True).folder) == expected
    finish(words)
    assert leftovers(folder) == []
    return done


def kill_comparisons(folder: Path, kills: int) -> int:
    """Kill and resume comparisons; each ends with the records of an undisturbed one."""
    words = ["compare", *write_tables(folder, 300), *QUICK, "--out"]
    seconds, out, done = finish([*words, str(folder / "whole")]), folder / "out", 0
    expected, kill = metrics(folder / "whole"), Killer([*words, str(out)], seconds)
    while done < kills:
        done += kill()
        check_comparison(out, expected)
        if (out / "index.html").exists() or done == kills:
            finish(kill.words)
            assert metrics(out) == expected
            assert leftovers(out) == []
            shutil.rmtree(out)
    return done


def check_comparison(out: Path, expected: dict) -> None:
    """What there is of it is whole."""
    if (out / "records.sqlite").exists():
        assert metrics(out).items() <= expected.items()
    if (out / "graph").exists():
        open_graph(out / "graph", verify=True)
    if (out / "model").exists():
        load_model(out / "model")


def metrics(folder: Path) -> dict:
    """The scores of each run, by mechanism and seed."""
    with Store(folder / "records.sqlite") as store:
        return {(each.mechanism, each.seed): str(each.metrics) for each in store.records()}


def leftovers(folder: Path) -> list[Path]:
    return [*folder.rglob(f"*{TEMPORARY}"), *folder.rglob("graph.new")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    count = parser.parse_args().kills
    for trial in (kill_imports, kill_comparisons):
        with tempfile.TemporaryDirectory() as place:
            print(
                f"{trial.__name__}: {trial(Path(place), count)} kills, nothing lost or left over",
                flush=True,
            )
