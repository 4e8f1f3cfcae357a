"""What the docs say of results and settings is what records and benchmarks say."""

import re
from pathlib import Path

import pytest

from dynagat.benchmarks import BENCHMARKS
from dynagat.experiment import departures
from dynagat.experiment.store import read_lines
from dynagat.report import write_report

ROOT = Path(__file__).parent.parent
every_benchmark = pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=list(BENCHMARKS))


recorded = [each for each in BENCHMARKS.values() if (ROOT / f"results/{each.name}.jsonl").exists()]


@pytest.mark.parametrize("benchmark", recorded, ids=lambda each: each.name)
def test_the_results_page_is_made_from_the_committed_records(benchmark, tmp_path):
    path = ROOT / f"results/{benchmark.name}.jsonl"
    records = list(read_lines(path.read_text().splitlines(), str(path)))
    write_report(records, [benchmark], tmp_path)
    made = (tmp_path / f"{benchmark.name}.md").read_text()
    kept = (ROOT / f"docs/results/{benchmark.name}.md").read_text()
    assert made == kept, "docs/results is not what the records give: run `make docs`"
    for name in re.findall(r"\]\((\S+\.svg)\)", made):
        assert (tmp_path / name).read_text() == (ROOT / "docs/results" / name).read_text()


@pytest.mark.parametrize("benchmark", recorded, ids=lambda each: each.name)
def test_the_committed_records_are_runs_of_the_benchmark_as_it_is_now(benchmark):
    path = ROOT / f"results/{benchmark.name}.jsonl"
    for record in read_lines(path.read_text().splitlines(), str(path)):
        assert benchmark.as_recorded(record).key(record.mechanism, record.seed) == record.key


@every_benchmark
def test_every_departure_is_explained(benchmark):
    text = (ROOT / "docs/reproduction.md").read_text()
    starts = (benchmark.settings, *benchmark.by_dataset.values())
    for mark in (mark for start in starts for mark in departures(start)):
        line = next((x for x in text.splitlines() if x.startswith(f"| {mark.number} |")), "")
        assert f"`{mark.path.split('.')[-1]}`" in line, mark
