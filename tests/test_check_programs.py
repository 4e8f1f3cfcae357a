"""dynagat varmisuse: check, its formats and its bad input, and the measurement by injection."""

import json
import math
import os
import textwrap
from dataclasses import replace
from inspect import getsource

import numpy as np
import pytest
import torch

from dynagat.benchmarks.varmisuse.check import check
from dynagat.benchmarks.varmisuse.findings import CheckReport, Finding
from dynagat.benchmarks.varmisuse.injection import NO_PLACE, inject
from dynagat.benchmarks.varmisuse.measured import Alarms, MeasuredFile, Measurement
from dynagat.benchmarks.varmisuse.measurement import measure
from dynagat.benchmarks.varmisuse.model import VariableModel, load_model
from dynagat.benchmarks.varmisuse.sarif import RULE, sarif
from dynagat.benchmarks.varmisuse.scoring import FAR, score_uses
from dynagat.data.programs import data_flow
from dynagat.data.programs.labels import decode
from dynagat.data.programs.python_files import import_python
from dynagat.data.programs.python_graph import Program
from dynagat.data.programs.python_source import MANY_BRANCHES, NO_USE, SkippedFile
from dynagat.data.programs.slots import candidates
from dynagat.data.programs.syntax import ProgramError
from tests.test_cli import dynagat

AREA = "def area(width, height):\n    return width * width\n"
HOSTILE = "</script><img src=x onerror=alert(1)>"


class Likes(torch.nn.Module):
    """A network whose score of a candidate depends on its name only."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def forward(self, labels, graph, slot, candidate):
        names = [decode(labels.codes[label].numpy()) for label in labels.label[candidate]]
        return torch.tensor([float(self.scores.get(name, 0)) for name in names])


def likes(**scores):
    return VariableModel("0123456789", "a toy", Likes(scores).eval(), "mine", 5, 10_000)


# Scores


def test_each_use_has_the_softmax_of_its_candidates_scores():
    uses = list(score_uses(Program.of(AREA), likes(height=2)))
    assert [(u.line, u.column, u.present, u.suggested) for u in uses] == [
        (2, 12, "width", "height"),
        (2, 20, "width", "height"),
    ]
    for use in uses:
        assert use.present_probability == pytest.approx(1 / (1 + math.e**2))
        assert use.suggested_probability == pytest.approx(1 / (1 + math.e**-2))
        assert use.certainty == pytest.approx(2)


def test_of_several_others_the_most_probable_one_is_suggested():
    text = "def f(a, b, c):\n    return c\n"
    for best in "ab":
        (use,) = score_uses(Program.of(text), likes(**{best: 3}))
        assert (use.present, use.suggested) == ("c", best)
        assert use.suggested_probability == pytest.approx(math.e**3 / (math.e**3 + 2))


def test_batches_do_not_change_the_scores():
    text = "".join(f"def f{n}(a, b):\n    return a * b + a\n" for n in range(9))
    every = [
        [(use.line, use.column, use.certainty) for use in score_uses(Program.of(text), model)]
        for model in (replace(likes(a=1), max_nodes=count) for count in (1, 200, 10**6))
    ]
    assert len(every[0]) == 27
    assert every[0] == every[1] == every[2]


def test_a_network_that_diverged_is_named():
    with pytest.raises(ValueError, match="run 01234567 diverged: its network gives NaN"):
        list(score_uses(Program.of(AREA), likes(width=math.nan)))


# check


def test_findings_are_above_the_threshold_and_the_most_certain_are_first(tmp_path):
    (tmp_path / "b.py").write_text("def f(x, y):\n    return x\n")  # certainty 3
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text(AREA)  # certainty 5, twice
    (tmp_path / "c.py").write_text("def f(x, y):\n    return y\n")  # y is right
    report = check([tmp_path], likes(height=5, y=3), threshold=0.95)
    assert [(os.path.basename(f.path), f.line, f.column) for f in report.findings] == [
        ("a.py", 2, 12), ("a.py", 2, 20), ("b.py", 2, 12)
    ]  # fmt: skip
    assert (report.files, report.uses, report.skipped) == (3, 4, {})
    assert len(check([tmp_path], likes(height=5, y=3), threshold=0.96).findings) == 2
    assert "2, 12" not in str(report)
    assert "b.py:2:12: x -> y (0.9526 against 0.0474)" in str(report)
    assert "would replace 3 of 4 uses of variables in 3 files" in str(report)
    assert "at least 0.95 (run 01234567: a toy)" in str(report)


def test_a_suggestion_must_be_more_probable_than_the_present_variable(tmp_path):
    (tmp_path / "a.py").write_text(AREA)
    assert check([tmp_path], likes(), threshold=0.1).findings == ()  # one half each
    assert len(check([tmp_path], likes(height=0.1), threshold=0.1).findings) == 2


def test_uses_of_a_variable_that_is_no_candidate_are_counted(tmp_path):
    (tmp_path / "a.py").write_text("def f(a, b, c, d, e, g):\n    return g, a\n")
    (tmp_path / "single.py").write_text("x = 1\nprint(x)\n")
    report = check([tmp_path], likes())
    assert (report.uses, report.left_out) == (1, {FAR: 1})
    assert f"Uses left out: 1 ({FAR})." in str(report)
    assert report.to_dict()["left_out"] == {FAR: 1}
    assert "left out" not in str(check([tmp_path / "single.py"], likes()))


BRANCHES = "def f(a, b):\n" + "    if a: pass\n" * 20 + "    return b\n"


def test_slots_take_a_limited_number_of_steps_and_what_is_left_is_counted(tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text(BRANCHES)
    assert check([path], likes()).left_out == {}
    for steps in (0, 700):
        monkeypatch.setattr(data_flow, "MAX_SLOT_STEPS", steps)
        report = check([path], likes(b=9))
        assert bool(report.uses) == bool(report.findings) == bool(report.files) == bool(steps)
        assert report.left_out == {MANY_BRANCHES: 21 - report.uses}
        assert report.skipped == {MANY_BRANCHES: (str(path),)}
    report = import_python([tmp_path], folder=tmp_path / "out", workers=1)
    assert report.info.parts["train"].graphs == 5
    monkeypatch.setattr(data_flow, "MAX_SLOT_STEPS", 0)
    with pytest.raises(ValueError, match="1 too many branches"):
        import_python([tmp_path], folder=tmp_path / "new", workers=1)


@pytest.mark.parametrize("threshold", [0, -1, 1.1, math.nan])
def test_an_impossible_threshold_is_refused(threshold, tmp_path):
    with pytest.raises(ValueError, match=r"threshold must lie in \(0, 1\], but is"):
        check([tmp_path], likes(), threshold=threshold)


def test_columns_count_characters_from_one(tmp_path):
    path = tmp_path / "a.py"
    text = "def f(width, height):\n\tprint('é😀', width)\n"
    for data in (
        text.encode(),
        b"\xef\xbb\xbf" + text.encode(),
        text.replace("\n", "\r\n").encode(),
    ):
        path.write_bytes(data)
        (finding,) = check([path], likes(height=9)).findings
        assert (finding.line, finding.column) == (2, 14)
        assert text.split("\n")[1][finding.column - 1 :].startswith("width")


BAD = {
    "syntax.py": b"def f(:",
    "binary.py": bytes(range(128, 256)) * 9,
    "nul.py": b"a = 1\0",
    "latin.py": "ä = 1".encode("latin-1"),
    "plain.py": b"print('no variables')",
    "single.py": b"x = 1\nprint(x)\n",
    "empty.py": b"",
    "large.py": b"x = 1\n" * 900_000,  # 5.4 MB
    "deep.py": b"x = " + b"-" * 50_000 + b"1",
}


def bad_folder(folder):
    for name, data in BAD.items():
        (folder / name).write_bytes(data)
    (folder / "gone.py").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.py")
    (folder / "library.so").write_bytes(b"\x7fELF")
    (folder / "area.py").write_text(AREA)


def test_files_that_can_not_be_used_are_counted_and_named(tmp_path):
    bad_folder(tmp_path)
    report = check([tmp_path, tmp_path / "area.py"], likes(height=9))
    assert {r: [os.path.basename(n) for n in names] for r, names in report.skipped.items()} == {
        "not valid Python": ["nul.py", "syntax.py"],
        "not UTF-8": ["binary.py", "latin.py"],
        "larger than 500,000 bytes": ["large.py"],
        "nested too deeply": ["deep.py"],
        "can't be read": ["gone.py"],
        "not a file": ["pipe.py"],
        NO_USE: ["empty.py", "plain.py", "single.py"],
    }
    assert (report.files, len(report.findings)) == (1, 2)  # of a file that is given twice


def test_an_import_names_the_same_files(tmp_path):
    bad_folder(tmp_path)
    (tmp_path / "more.py").write_text(AREA.replace("*", "+"))
    report = import_python([tmp_path], folder=tmp_path / "out", workers=1)
    assert report.info.skipped == {
        reason: len(names) for reason, names in check([tmp_path], likes()).skipped.items()
    }


def test_a_path_without_python_files_is_one_sentence(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\0")
    with pytest.raises(
        ValueError, match=r"PATH must hold Python files .*none in .*" + tmp_path.name
    ):
        check([tmp_path], likes())
    with pytest.raises(ValueError, match="nowhere does not exist"):
        check([tmp_path / "nowhere"], likes())


# SARIF


def test_a_sarif_log_points_at_the_variable_and_names_skipped_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "a b#ü.py"
    (tmp_path / name).write_text(AREA)
    (tmp_path / "bad.py").write_text("def f(:")
    log = sarif(check([name, "bad.py", tmp_path / "bad.py"], likes(height=9)))
    assert log == json.loads(json.dumps(log))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["tool"]["driver"]["rules"][0]["id"] == RULE
    assert run["tool"]["driver"]["properties"]["threshold"] == 0.9
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == f"{tmp_path.as_uri()}/"
    first, second = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == (RULE, 0, "warning")
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b%23%C3%BC.py", "uriBaseId": "SRCROOT"}
    assert place["region"] == {"startLine": 2, "startColumn": 12, "endLine": 2, "endColumn": 17}
    assert second["locations"][0]["physicalLocation"]["region"]["startColumn"] == 20
    assert first["properties"]["suggestedProbability"] == pytest.approx(0.99988, abs=1e-5)
    assert 0 <= first["rank"] <= 100
    (change,) = first["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    assert replacement["deletedRegion"] == place["region"]
    assert replacement["insertedContent"] == {"text": "height"}
    (notice,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notice["message"]["text"] == "Skipped: not valid Python."
    report = CheckReport("0123", "toy", 0.9, 0, 0, {}, (), {"x": (str(tmp_path / "bad.py"),)})
    (notice,) = sarif(report)["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    uri = (tmp_path / "bad.py").as_uri()
    assert notice["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": uri}


def test_control_characters_of_file_names_are_escaped_in_text():
    finding = Finding("a\x1b[31m\n.py", 1, 2, "x", "y", 0.1, 0.9)
    assert str(finding).startswith("a\\x1b[31m\\n.py:1:2: x -> y")


# Injection


@pytest.mark.parametrize("seed", range(3))
def test_an_injection_replaces_one_use_by_another_candidate(seed):
    text = getsource(textwrap)
    injection = inject(text.replace("\n", "\r\n"), str(seed))
    lines = text.split("\n")
    line, start = lines[injection.line - 1], injection.column - 1
    end = start + len(injection.right)
    assert line[start:end] == injection.right
    lines[injection.line - 1] = line[:start] + injection.wrong + line[end:]
    expected = Program.of("\n".join(lines))
    assert injection.program.syntax.labels == expected.syntax.labels
    place = injection.line, injection.column
    (use,) = [u for u in expected.uses if (u.token.line, u.token.column + 1) == place]
    names = [each.name for each in candidates(use, expected.flow)]
    assert injection.wrong == use.variable.name != injection.right
    assert {injection.wrong, injection.right} <= set(names)
    again = inject(text, str(seed))
    assert ((again.line, again.column), again.wrong) == (place, injection.wrong)


def test_a_program_without_a_place_for_a_misuse_is_skipped():
    for text in ("", "x = 1\nprint(x)\n"):
        with pytest.raises(SkippedFile, match=NO_PLACE):
            inject(text, "0")
    with pytest.raises(SkippedFile, match="not valid Python"):
        inject("def f(:", "0")


# Measurement


class Seer(VariableModel):
    """Knows that `bad` is always wrong."""

    def log_probabilities(self, graphs):
        for graph in graphs:
            names = [decode(graph.codes[graph.label[node]]) for node in graph.candidates]
            row = np.log([0.01 if name == "bad" else 1.0 for name in names])
            yield torch.tensor(row - np.log(np.exp(row).sum()))


GOOD = "def f{n}(good, bad):\n    return good + good + {n}\n"
CACHE = "DYNAGAT_CACHE"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a network was trained for one round on a few programs; `away` is the unseen project."""
    folder = tmp_path_factory.mktemp("programs")
    for project in ("home", "away"):
        (folder / project).mkdir()
        for n in range(30 if project == "home" else 6):
            text = GOOD.format(n=f"1{n}") + f"print({HOSTILE!r}, {n})\n" * (n % 2)
            text = text.replace("+ good +", "+ good * 2 +") if project == "away" else text
            (folder / project / f"file{n}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE, str(folder / "cache"))
        places = folder / "home", folder / "away"
        dynagat("data", "import-python", *places, "--name", "mine", "--unseen", "away",
                "--workers", 1, "--distance", 5, cwd=folder)  # fmt: skip
        settings = ("dataset=mine", "max_rounds=1", "layers=2", "dim=8")
        words = [word for each in settings for word in ("--set", each)]
        dynagat("run", "varmisuse", "--mechanism", "gatv2", "--heads", 2, "--seeds", 1, *words,
                cwd=folder)  # fmt: skip
        yield folder


def test_the_measurement_of_a_network_that_knows_the_misuse_is_perfect(folder):
    model = Seer(**vars(likes()))
    paths = [folder / "home", folder / "away"]
    found = measure(model, paths, threshold=0.95)
    assert len(found.files) == 6
    assert all(each.path.startswith("away/file") for each in found.files)
    assert {(e.wrong, e.right, e.suggested, e.rank, e.uses) for e in found.files} == {
        ("bad", "good", "good", 1, 2)
    }
    assert (found.ranked_within(1), found.ranked_within(5)) == (6, 6)
    assert (found.by_chance(1), found.by_chance(5)) == (3, 6)
    assert found.alarms[0] == Alarms(0.95, reported=6, injected=6, repaired=6)
    assert [each.threshold for each in found.alarms] == [0.95, 0.5, 0.7, 0.8, 0.9, 0.99]
    assert found.alarms[-1].reported == 6
    assert "ranked first in 6 of 6 files; by chance 3.0" in str(found)
    assert "at threshold 0.95: 6 uses reported, 6 of them misused, precision 1.000" in str(found)
    few = measure(model, paths, files=2, seed=1)
    assert len(few.files) == 2
    assert measure(model, paths, files=2, seed=1) == few


def test_among_equals_the_misused_variable_is_the_last(folder):
    found = measure(likes(), [folder / "away"])
    assert {each.rank for each in found.files} == {2}
    assert all(each.reported == 0 and each.precision is None for each in found.alarms)


def test_a_file_with_too_many_branches_is_not_measured(folder, monkeypatch):
    def place(*_):
        raise ProgramError("it has too many branches")

    monkeypatch.setattr(data_flow.DataFlow, "place", place)
    with pytest.raises(ValueError, match="could be put into an unseen file: 6 too many branches"):
        measure(likes(), [folder / "away"])


def test_the_counts_of_a_measurement_are_those_of_its_files():
    def file(rank, uses):
        return MeasuredFile("a.py", 1, 1, "x", "y", "y", 0.1, 0.9, rank, uses)

    files = (file(1, 10), file(5, 10), file(6, 20), file(2, 2))
    alarms = Alarms(0.9, reported=8, injected=2, repaired=1)
    found = Measurement("0123", "toy", 0, 0.9, (alarms,), files, {})
    assert (found.ranked_within(1), found.ranked_within(5)) == (1, 3)
    assert found.by_chance(1) == pytest.approx(0.1 + 0.1 + 0.05 + 0.5)
    assert found.by_chance(5) == pytest.approx(0.5 + 0.5 + 0.25 + 1)
    assert alarms.precision == 0.25
    values = json.loads(json.dumps(found.to_dict()))
    assert values["ranked"]["first_5"]["files"] == 3
    assert values["alarms"][0]["precision"] == 0.25


def test_files_that_can_not_be_measured_are_named_and_none_at_all_is_an_error(folder):
    model = likes()
    with pytest.raises(ValueError, match=r"PATH must hold projects of test-unseen of 'mine'"):
        measure(model, [folder / "home"])
    with pytest.raises(
        ValueError, match=r"no misused variable could be put .*: 6 with more than 1"
    ):
        measure(model, [folder / "away"], max_uses=1)
    with pytest.raises(ValueError, match="files must be at least 1, but is 0"):
        measure(model, [folder / "away"], files=0)
    with pytest.raises(ValueError, match="there is no set of programs 'python'"):
        measure(replace(model, dataset="python"), [folder / "away"])


def test_the_page_of_a_run_has_the_text_of_unseen_programs(folder):
    text = dynagat("inspect", "varmisuse", cwd=folder).stdout
    assert "relation \\ head" in text
    page = (folder / "inspect.html").read_text()
    data = json.loads(page.split('id="programs-data">')[1].split("</script>")[0])
    assert {each["name"].split("/")[0] for each in data["programs"]} == {"away"}
    rows = page.split('class="shares">')[1].split("</table>")[0].count('<th scope="row">')
    assert rows == len(data["layers"][0]["edges"]) == 23


# Commands


def varmisuse(folder, *words, code=0):
    return dynagat("varmisuse", *words, cwd=folder, code=code)


def test_the_command_checks_files_as_text_json_and_sarif(folder):
    words = ("check", "away", "home/file1.py", "--model", "varmisuse", "--threshold", 0.01)
    text = varmisuse(folder, *words).stdout
    assert "in 7 files: another variable is more probable" in text
    assert "at least 0.01 (run " in text
    values = json.loads(varmisuse(folder, *words, "--format", "json").stdout)
    assert values["uses"] == 14
    assert text.count(" -> ") == len(values["findings"])
    (run,) = json.loads(varmisuse(folder, *words, "--format", "sarif").stdout)["runs"]
    assert len(run["results"]) == len(values["findings"])
    (folder / "home" / "bad.py").write_text("def f(:")
    done = varmisuse(folder, "check", "home/bad.py", "--model", values["run"][:6])
    assert done.stderr == "1 skipped: not valid Python (home/bad.py)\n"
    assert "would replace 0 of 0 uses of variables in 0 files" in done.stdout


def test_the_command_measures_itself(folder):
    done = varmisuse(folder, "evaluate", "home", "away", "--model", "varmisuse", "--files", 3)
    assert done.stdout.startswith("3 files of unseen projects with one misused variable each, 6 us")
    done = varmisuse(folder, "evaluate", "away", "--model", "varmisuse", "--json")
    assert len(json.loads(done.stdout)["files"]) == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "--model", "varmisuse"], "nowhere does not exist"),
        (
            ["away", "--model", "zz"],
            "no run of dynagat.sqlite fits 'zz', which must be a benchmark",
        ),
        (["away", "--model", "varmisuse", "--threshold", 2], "threshold must lie in (0, 1]"),
        (["away", "--model", "varmisuse", "--distance", 0], "distance must be at least 1"),
        (
            ["away", "--model", "varmisuse", "--store", "no.sqlite"],
            "store no.sqlite does not exist",
        ),
    ],
)
def test_bad_arguments_are_one_sentence(words, message, folder):
    (line,) = varmisuse(folder, "check", *words, code=2).stderr.splitlines()
    assert message in line


def test_a_model_has_the_distance_of_its_training_data(folder, monkeypatch, tmp_path):
    store = folder / "dynagat.sqlite"
    assert load_model("varmisuse", store).distance == 5
    assert load_model("varmisuse", store, distance=3).distance == 3
    listed = folder / "cache" / "store" / "mine" / "programs.json"
    text = listed.read_text()
    listed.write_text(text.replace('"distance": 5', '"window": 5'))
    try:
        with pytest.raises(ValueError, match="'mine', which `dynagat data import-python` did not"):
            load_model("varmisuse", store)
    finally:
        listed.write_text(text)
    monkeypatch.setenv(CACHE, str(tmp_path))
    with pytest.raises(ValueError, match=r"not in the graph store; --distance \(distance=\) must"):
        load_model("varmisuse", store)
    assert load_model("varmisuse", store, distance=3).distance == 3
