"""The documentation states the results that the records give, and the settings in use."""

import re
from pathlib import Path

import pytest

from dynagat.benchmarks import BENCHMARKS
from dynagat.experiment import departures
from dynagat.experiment.store import read_lines
from dynagat.report import Findings, claims_page, read_theorems, write_markdown
from dynagat.report.theorems import counterexample

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs/results"
every_benchmark = pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=list(BENCHMARKS))
recorded = [each for each in BENCHMARKS.values() if (ROOT / f"results/{each.name}.jsonl").exists()]


def records_of(benchmark):
    path = ROOT / f"results/{benchmark.name}.jsonl"
    return list(read_lines(path.read_text().splitlines(), str(path)))


@pytest.mark.parametrize("benchmark", recorded, ids=lambda each: each.name)
def test_the_results_page_is_the_report_of_the_committed_records(benchmark, tmp_path):
    write_markdown(Findings.of(records_of(benchmark), benchmark), tmp_path)
    for path in sorted(tmp_path.iterdir()):
        committed = (RESULTS / path.name).read_text()
        assert path.read_text() == committed, f"docs/results/{path.name} is old: run `make docs`"


def test_the_findings_page_is_that_of_the_committed_records_and_fits_two_screens():
    every = {name: Findings.of(records_of(b) if b in recorded else [], b)
             for name, b in BENCHMARKS.items()}  # fmt: skip
    committed = (ROOT / "docs/findings.md").read_text()
    theorems = read_theorems(ROOT / "docs/theorems/theorems.json")
    expected = claims_page(every.values(), theorems)
    assert expected == committed, "docs/findings.md is old: run `make docs`"
    assert len(committed.split()) < 1300
    assert len(committed.splitlines()) < 100
    for each in BENCHMARKS.values():
        claims = every[each.name].extras.claims or (each.claim,)
        assert each.claim == "" or each.name in committed or all(c in committed for c in claims)


def test_the_drawing_of_the_counterexample_is_the_committed_one():
    committed = (ROOT / "docs/theorems/counterexample.svg").read_text()
    assert committed.replace('<svg style="background: white" ', "<svg ") == counterexample() + "\n"


def test_the_results_folder_has_no_page_or_figure_without_records():
    pages = {f"{each.name}.md" for each in recorded}
    texts = [(RESULTS / page).read_text() for page in pages]
    figures = {name for text in texts for name in re.findall(r"\]\((\S+\.svg)\)", text)}
    shown = {path.name for path in RESULTS.iterdir()} - {"index.html"}  # which git ignores
    assert shown == pages | figures


@pytest.mark.parametrize("benchmark", recorded, ids=lambda each: each.name)
def test_the_committed_records_are_runs_of_the_benchmark_as_it_is_now(benchmark):
    for record in records_of(benchmark):
        assert benchmark.as_recorded(record).key(record.mechanism, record.seed) == record.key


@every_benchmark
def test_every_departure_is_explained(benchmark):
    text = (ROOT / "docs/reproduction.md").read_text()
    starts = (benchmark.settings, *benchmark.by_dataset.values())
    for mark in (mark for start in starts for mark in departures(start)):
        line = next((x for x in text.splitlines() if x.startswith(f"| {mark.number} |")), "")
        assert f"`{mark.path.split('.')[-1]}`" in line, mark
