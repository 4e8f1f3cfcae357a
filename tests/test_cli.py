"""The command line: results on stdout, progress on stderr, errors in one sentence."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
import torch
from typer.testing import CliRunner

from dynagat.cli import app
from dynagat.waiting import is_command

COMMAND = [sys.executable, "-m", "dynagat"]
TINY = ["--set", "k=4", "--set", "max_rounds=2", "--set", "dim=16"]
KEYS = {"benchmark", "mechanism", "heads", "seed", "settings", "metrics", "seconds",
        "peak_memory_bytes", "converged", "versions"}  # fmt: skip


def dynagat(*words, cwd, code=0):
    """Run a command in this process; it must end with this exit code."""
    here = os.getcwd()
    os.chdir(cwd)
    try:
        done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    finally:
        os.chdir(here)
    assert done.exit_code == code, done.stderr
    return done


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_list_names_benchmarks_mechanisms_and_data(tmp_path):
    shown = dynagat("list", cwd=tmp_path).stdout
    assert "dictionary-lookup" in shown
    assert "gatv2 (1)" in shown
    assert "present" in shown


def test_run_prints_a_record_per_line_and_does_not_repeat_it(tmp_path):
    words = ["run", "dictionary-lookup", *TINY, "--mechanism", "gatv2,gat", "--heads", "1,2"]
    words += ["--seeds", "0", "--json"]
    first = dynagat(*words, cwd=tmp_path)
    records = [json.loads(line) for line in first.stdout.splitlines()]
    assert [(r["mechanism"], r["heads"]) for r in records] == [
        ("gatv2", 1), ("gatv2", 2), ("gat", 1), ("gat", 2)]  # fmt: skip
    assert all(set(record) == KEYS for record in records)
    assert records[0]["settings"]["data"]["k"] == 4
    again = dynagat(*words, cwd=tmp_path)
    assert again.stdout == first.stdout
    assert "4 of 4 runs are already in dynagat.sqlite" in again.stderr


def test_as_published_uses_the_settings_of_the_released_code(tmp_path):
    words = ["run", "dictionary-lookup", "--as-published", "--set", "max_rounds=1", "--json"]
    done = dynagat(*words, "--set", "k=4", "--mechanism", "gat", "--heads", 8, cwd=tmp_path)
    record = json.loads(done.stdout.splitlines()[0])
    assert record["settings"]["network"]["dropout"] == 0.5
    assert record["settings"]["network"]["loops"] == ["gat"]
    assert record["settings"]["data"]["split_seed"] == 11


def test_smoke_runs_every_mechanism_and_shows_a_table(tmp_path):
    done = dynagat("run", "dictionary-lookup", "--smoke", cwd=tmp_path)
    for name in ("GATv2", "GAT", "DPGAT", "GCN", "GIN"):
        assert name in done.stdout
    assert "6/6" in done.stderr


def test_report_writes_tables_figures_and_a_page(tmp_path):
    dynagat("run", "dictionary-lookup", *TINY, "--mechanism", "gatv2", "--json", cwd=tmp_path)
    done = dynagat("report", "--out", "there", cwd=tmp_path)
    assert "GATv2" in done.stdout
    page = (tmp_path / "there/index.html").read_text()
    assert page.rstrip().endswith("</html>")


def test_records_are_exported_and_imported_as_json_lines(tmp_path):
    dynagat("run", "dictionary-lookup", *TINY, "--mechanism", "gin", "--json", cwd=tmp_path)
    lines = dynagat("records", "export", cwd=tmp_path).stdout
    assert len(lines.splitlines()) == 3
    dynagat("records", "export", "--out", "a/b.jsonl", cwd=tmp_path)
    assert (tmp_path / "a/b.jsonl").read_text() == lines
    moved = dynagat("records", "import", "a/b.jsonl", "--store", "new.sqlite", cwd=tmp_path)
    assert "a/b.jsonl: 3 new" in moved.stdout
    assert dynagat("records", "export", "--store", "new.sqlite", cwd=tmp_path).stdout == lines
    (tmp_path / "bad.jsonl").write_text(lines + '{"key": 1}\n')
    refused = dynagat("records", "import", "bad.jsonl", cwd=tmp_path, code=2)
    assert "bad.jsonl, line 4: a record must have the fields" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bert"], "there is no benchmark 'bert'; there are dictionary-lookup"),
        (["dictionary-lookup", "--mechanism", "bert"], "it has gatv2, gat, dpgat, gcn, gin"),
        (["dictionary-lookup", "--set", "kk=3"], "there is no setting 'kk'; there are data.k,"),
        (["dictionary-lookup", "--set", "k=ten"], "data.k must be a whole number, but is 'ten'"),
        (["dictionary-lookup", "--set", "k"], "must be written name=value, but is 'k'"),
        (["dictionary-lookup", "--set", "k=0"], "k must be at least 1, but is 0"),
        (["dictionary-lookup", "--set", "split=odd"], "must be one of pairs, random"),
        (["dictionary-lookup", "--heads", "3"], "heads must divide dim=128, but is 3"),
        (["dictionary-lookup", "--seeds", "a-b"], "seeds must be numbers and ranges"),
        (["dictionary-lookup", "--smoke", "--workers", "0"], "workers must be at least 1"),
        (["dictionary-lookup", "--smoke", "--store", "text"], "text is not a database of dynagat"),
        (["dictionary-lookup", "--smoke", "--store", "text/x"], "text/x can't be opened"),
        (["dictionary-lookup", "--smoke", "--store", "old"], "old is of version 99, but"),
        (["dictionary-lookup", "--smoke", "--store", "other"], "a database of another program"),
        (["dictionary-lookup", "--smoke", "--store", "."], "is a folder, not a file"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_with_exit_code_2(tmp_path, words, message):
    (tmp_path / "text").write_text("not a database, but longer than the header of one\n" * 40)
    for name, number in (("old", 0x64796E61), ("other", 7)):
        with sqlite3.connect(tmp_path / name) as database:
            database.execute("CREATE TABLE t (x)")
            database.execute(f"PRAGMA application_id = {number}")
            database.execute("PRAGMA user_version = 99")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = dynagat("run", *words, cwd=tmp_path, code=2)
    assert message in " ".join(done.stderr.split())
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_files_of_records_are_reported_without_the_default_store(tmp_path):
    words = ["run", "dictionary-lookup", *TINY, "--seeds", "0", "--json", "--mechanism"]
    dynagat(*words, "gin", cwd=tmp_path)
    dynagat("records", "export", "--out", "gin.jsonl", cwd=tmp_path)
    dynagat(*words, "gcn", cwd=tmp_path)
    alone = dynagat("report", "--records", "gin.jsonl", cwd=tmp_path).stdout
    assert "GIN" in alone
    assert "GCN" not in alone
    both = dynagat("report", "--records", "gin.jsonl", "--store", "dynagat.sqlite", cwd=tmp_path)
    assert "GCN" in both.stdout


def test_a_report_needs_a_store(tmp_path):
    done = dynagat("report", cwd=tmp_path, code=2)
    assert "store dynagat.sqlite does not exist; `dynagat run` creates it" in done.stderr
    assert not list(tmp_path.iterdir())


def start(words, cwd):
    """A child process that handles Ctrl-C, even if the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the child inherits it
    try:
        pipe = subprocess.PIPE
        return subprocess.Popen([*COMMAND, *words], cwd=cwd, stderr=pipe, stdout=pipe, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_stops_cleanly_and_says_how_to_continue(tmp_path, workers):
    words = ["run", "dictionary-lookup", "--set", "k=4", "--set", "dim=16", "--mechanism", "gat"]
    words += ["--seeds", "0-300", "--set", "max_rounds=5", "--workers", str(workers)]
    child = start(words, tmp_path)
    for line in child.stderr:
        if line.startswith("3/"):
            break
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert "The same command continues:" in err
    assert "dynagat run dictionary-lookup --set k=4" in err
    assert "Traceback" not in err
    with sqlite3.connect(tmp_path / "dynagat.sqlite") as database:
        assert database.execute("SELECT count(*) FROM record").fetchone()[0] >= 3


def test_a_killed_command_loses_no_finished_run_and_can_be_repeated(tmp_path):
    words = ["run", "dictionary-lookup", *TINY, "--mechanism", "dpgat", "--seeds", "0-11"]
    words += ["--json"]
    finished = 0
    for wait in (0.3, 0.8):
        child = subprocess.Popen(
            [*COMMAND, *words],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stderr is not None
        for line in child.stderr:
            finished += "/" in line.split()[0]
            if "/" in line.split()[0]:
                break
        time.sleep(wait)
        child.kill()
        finished += sum("/" in line.split()[0] for line in child.communicate()[1].splitlines())
        with sqlite3.connect(tmp_path / "dynagat.sqlite") as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert database.execute("SELECT count(*) FROM record").fetchone()[0] >= finished
    done = dynagat(*words, cwd=tmp_path)
    seeds = [json.loads(line)["seed"] for line in done.stdout.splitlines()]
    assert seeds == [*range(12)]


@pytest.mark.parametrize(
    ("argv", "orig_argv", "answer"),
    [
        (["/usr/bin/dynagat", "list"], ["python", "/usr/bin/dynagat", "list"], True),
        (["-m", "list"], ["python", "-X", "dev", "-m", "dynagat", "list"], True),
        (["-m", "tests"], ["python", "-m", "pytest", "tests"], False),
        (["train.py", "-m", "dynagat"], ["python", "train.py", "-m", "dynagat"], False),
        (["-c", "dynagat"], ["python", "-c", "import dynagat", "dynagat"], False),
        ([""], ["python"], False),
    ],
)
def test_the_command_is_told_apart_from_programs_that_use_the_library(argv, orig_argv, answer):
    assert is_command(argv, orig_argv) is answer


@pytest.mark.skipif(sys.platform != "linux", reason="needs GNU OpenMP")
@pytest.mark.parametrize(
    ("setting", "sleeps"), [({}, True), ({"OMP_WAIT_POLICY": "active"}, False)]
)
def test_idle_threads_of_the_command_sleep_unless_the_user_says_otherwise(setting, sleeps):
    others = {name: value for name, value in os.environ.items() if name[:4] not in ("OMP_", "GOMP")}
    environment = {**others, **setting, "OMP_DISPLAY_ENV": "VERBOSE"}
    command = [*COMMAND, "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "GOMP_SPINCOUNT = '" in done.stderr
    assert ("GOMP_SPINCOUNT = '0'" in done.stderr) is not bool(setting)


def test_without_its_packages_the_command_line_says_what_to_install():
    script = "import sys; sys.modules['typer'] = None; from dynagat.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "needs typer; pip install 'dynagat[suite]' installs it" in done.stderr
