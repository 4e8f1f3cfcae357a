"""The paper's training details beside those of the benchmarks, in the documentation."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dynagat.benchmarks.training_table import END, START, differences, training_table
from dynagat.cli import app
from dynagat.report.markdown import table

PAGE = Path(__file__).parent.parent / "docs/reproduction.md"


def test_the_documented_table_is_that_of_the_benchmarks():
    block = PAGE.read_text().partition(START)[2].partition(END)[0]
    assert block.strip() == table(training_table()).strip(), "run `make docs`"


def test_the_benchmarks_have_the_printed_values():
    assert differences() == []


def test_a_file_without_the_marks_is_left_alone(tmp_path):
    def listed(*words, code=0):
        done = CliRunner().invoke(app, ["list", *words], catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done

    path = tmp_path / "page.md"
    path.write_text("text")
    message = listed("--training", "--into", str(path), code=2).stderr
    assert f"{path} must have the line {START} once" in message
    assert path.read_text() == "text"
    path.write_text(f"before\n{START}\nold\n{END}\nafter")
    listed("--training", "--into", str(path))
    assert path.read_text() == f"before\n{START}\n\n{table(training_table())}\n{END}\nafter"
    assert "--into is for --training" in listed("--into", str(path), code=2).stderr


@pytest.mark.parametrize("place", ["ogbn-arxiv", "ours", "searched", "GraphSAINT"])
def test_the_command_prints_the_table(place):
    assert place in CliRunner().invoke(app, ["list", "--training"]).stdout
