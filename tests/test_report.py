"""The report: rows, headline, figures and pages show what the records hold, and nothing else."""

from __future__ import annotations

import html
import io
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import dynagat
from dynagat.benchmarks import BENCHMARKS, find
from dynagat.benchmarks.dictionary_lookup.attention import figure_1
from dynagat.benchmarks.dictionary_lookup.explorer import shown_runs
from dynagat.benchmarks.dictionary_lookup.figures import figure_3, gin_figure
from dynagat.experiment import Record, as_published, improved
from dynagat.experiment.benchmark import no_extras
from dynagat.experiment.settings import as_stored, grid
from dynagat.metrics import ACCURACY, Metric
from dynagat.report import Findings, print_report, write_markdown, write_report
from dynagat.report.markdown import table
from dynagat.report.page import left_out, page
from dynagat.report.parts import Table
from dynagat.report.provenance import commands
from dynagat.report.results import details_table, legend, result_table
from dynagat.report.rows import families, rows
from dynagat.report.wording import number, ranges
from dynagat.significance import Sample, bootstrap_interval, contrast, student

BENCHMARK = find("dictionary-lookup")
TEST = ACCURACY.on("test")
SVG = "{http://www.w3.org/2000/svg}"


def record(mechanism="gatv2", heads=1, seed=0, test=1.0, train=1.0, *, sets=("k=10",), **changes):
    """A record without a run; `sets` are as for --set, `published` is --as-published."""
    settings = BENCHMARK.settings
    if changes.pop("published", False):
        settings = as_published(settings)
    (settings,) = grid(settings, list(sets))
    benchmark = BENCHMARK.with_settings(settings).with_heads(heads)
    plain = Record(
        key=benchmark.key(mechanism, seed),
        benchmark=benchmark.name,
        mechanism=mechanism,
        heads=heads,
        seed=seed,
        fidelity="corrected",
        settings=as_stored(benchmark.settings) | {"revision": benchmark.revision},
        metrics={"test_accuracy": test, "train_accuracy": train},
        history=[],
        ended="perfect",
        converged=True,
        seconds=1.5,
        peak_memory_bytes=2**20,
        versions={"dynagat": "0.1.0"},
        commit="0123456789abcdef",
        created="2026-01-02T03:04:05+00:00",
    )
    return replace(plain, **changes)


def runs(mechanism, values, heads=1, **options):
    return [record(mechanism, heads, seed, value, **options) for seed, value in enumerate(values)]


def row_of(members, mechanism, heads=1):
    (row,) = [each for each in members if (each.mechanism, each.heads) == (mechanism, heads)]
    return row


def findings(records, benchmark=BENCHMARK):
    return Findings.of(records, benchmark)


def headline(records, benchmark=BENCHMARK):
    """All sentences; no figure is drawn."""
    parts = findings(records, replace(benchmark, extras=no_extras)).headline
    return [sentence for part in parts for sentence in part.sentences]


def table_text(members):
    """The rows' result tables as Markdown."""
    every = [family for _, family in families(members)]
    return "".join(table(result_table(family, folded=False, brief=True)) for family in every)


def page_text(records, benchmark=BENCHMARK):
    """The page's HTML."""
    every = [findings(records, benchmark)]
    return page(every, left_out(records, every))


def printed(records, benchmark=BENCHMARK):
    """What the terminal shows, at 100 columns."""
    console = Console(width=100, file=io.StringIO())
    print_report(console, records, [benchmark])
    return console.file.getvalue()


def attention(*graphs):
    """An exhibit of [head][query][key] weights of graphs."""
    k = len(graphs[0][0])
    return {"attention": {"values": [list(range(k))] * len(graphs), "weights": list(graphs)}}


def favouring(favourite, k, weight):
    """[query][key]: query i gives `weight` to key favourite(i), and the rest in falling order."""
    rest = [(k - key) * (1 - weight) / (k * (k + 1) / 2) for key in range(k)]
    weights = []
    for query in range(k):
        row = list(rest)
        row[favourite(query)] += weight
        weights.append([round(each, 4) for each in row])
    return weights


def test_the_records_of_these_tests_can_be_stored():
    plain = record("gat", 8)
    assert Record.from_json(plain.to_json()).key == plain.key


def test_a_row_summarises_its_seeds():
    values = [0.5, 0.7, 0.9]
    (row,) = rows(runs("gatv2", values), BENCHMARK)
    assert row.label == "k=10"
    assert row.family == "corrected"
    assert row.sample == Sample.of(values)
    assert row.interval == bootstrap_interval(values)
    assert row.difference == pytest.approx(0.7 - 1.0)
    assert row.published is not None
    assert row.published.where == "Figure 3"


@pytest.mark.parametrize(
    ("mechanism", "heads", "k", "part", "mean"),
    [
        ("gat", 8, 10, "test", 0.87),
        ("gat", 1, 4, "train", 0.85),
        ("gin", 1, 30, "test", 0.35),
        ("gatv2", 1, 100, "test", 1.0),
        ("dpgat", 1, 10, "test", None),
        ("gat", 4, 10, "test", None),
        ("gat", 8, 21, "test", None),
    ],
)
def test_a_row_has_the_number_that_the_paper_prints(mechanism, heads, k, part, mean):
    records = [record(mechanism, heads, sets=[f"k={k}"])]
    (row,) = findings(records).rows_of(ACCURACY.on(part))
    assert (row.published and row.published.mean) == mean


@pytest.mark.parametrize(("num_runs", "mean"), [(2, 0.4237), (10, 0.4237), (30, 0.4224)])
def test_runs_are_shown_beside_the_published_number_of_as_many(num_runs, mean):
    """The paper has a table of 10 runs, and one of 30 that does not say how many heads."""
    collab = find("ogbl-collab")
    members = runs("gat", [0.4] * num_runs, heads=8)
    settings = collab.with_heads(8).stored_settings()
    members = [
        replace(each, benchmark=collab.name, settings=settings, metrics={collab.metric.name: 0.4})
        for each in members
    ]
    (row,) = rows(members, collab)
    assert row.published.mean == mean


def test_p_is_that_of_gatv2_against_the_row():
    ours, theirs = [0.9, 0.95, 1.0], [0.5, 0.7, 0.6]
    members = rows(runs("gatv2", ours) + runs("gat", theirs, heads=8), BENCHMARK)
    row = row_of(members, "gat", 8)
    assert row.against == 1
    assert row.p == student(Sample.of(ours), Sample.of(theirs))
    assert row.contrast == contrast(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert row.gain == pytest.approx(0.35)
    assert row_of(members, "gatv2").contrast is None


def test_gatv2_with_as_many_heads_is_preferred():
    records = runs("gatv2", [0.9, 0.8]) + runs("gatv2", [0.7, 0.6], 8) + runs("gat", [0.1, 0.2], 8)
    assert row_of(rows(records, BENCHMARK), "gat", 8).against == 8


def by_holm(p_values):
    """Holm's correction, as the textbook has it."""
    corrected, highest = {}, 0.0
    for rank, p in enumerate(sorted(p_values)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p))
        corrected[p] = highest
    return [corrected[p] for p in p_values]


def test_holm_corrects_for_the_tests_against_one_mechanism_in_one_table():
    records = [r for k in (9, 10) for r in runs("gatv2", [0.9, 0.95, 1.0], sets=[f"k={k}"])]
    records += runs("gat", [0.5, 0.7, 0.6]) + runs("gat", [0.8, 0.9, 0.85], heads=8)
    records += runs("gat", [0.85, 0.95, 0.9], sets=["k=9"]) + runs("dpgat", [0.9, 0.97, 1.0])
    records += runs("gin", [0.3])  # one seed gives no p and does not count
    other = ["k=10", "split=random"]
    records += runs("gatv2", [0.9, 0.8], sets=other) + runs("gat", [0.5, 0.7], sets=other)
    tables = dict(families(rows(records, BENCHMARK)))
    against_gat = [row for row in tables["corrected"] if row.mechanism == "gat"]
    assert [row.num_tests for row in against_gat] == [3, 3, 3]
    expected = by_holm([row.p for row in against_gat])
    assert [row.p_holm for row in against_gat] == pytest.approx(expected)
    alone = [row_of(tables["corrected"], "dpgat"), row_of(tables["corrected, split=random"], "gat")]
    for row in alone:
        assert row.num_tests == 1
        assert row.p_holm == row.p
    gin = row_of(tables["corrected"], "gin")
    assert gin.num_tests == 0
    assert math.isnan(gin.p_holm)
    assert "on one data set (3 against GAT)." in legend(rows(records, BENCHMARK))


def test_the_legend_names_the_tables_if_several_are_corrected():
    records = []
    for sets in (["k=9"], ["k=10"], ["k=9", "split=random"], ["k=10", "split=random"]):
        records += runs("gatv2", [0.9, 0.8], sets=sets) + runs("gat", [0.5, 0.7], sets=sets)
        records += runs("gat", [0.4, 0.6], 8, sets=sets) if "split=random" in sets else []
    assert "(2 against GAT (corrected); 4 against GAT (corrected, split=random))." in legend(
        rows(records, BENCHMARK)
    )


def test_the_settings_of_a_fidelity_are_shown_as_its_name():
    records = [
        record(),
        record(published=True),
        record(sets=["k=10", "lr=0.01"]),
        record(sets=["k=10", "lr=0.01"], published=True),
        record(sets=["k=7", "split=random"]),
    ]
    assert {row.family for row in rows(records, BENCHMARK)} == {
        "corrected",
        "as-published",
        "corrected, lr=0.01",
        "as-published, lr=0.01",
        "corrected, split=random",
    }


def test_a_shorter_run_stays_in_its_family_and_says_so():
    records = [record(), record(sets=["k=10", "max_rounds=3"]), record(sets=["k=10", "patience=1"])]
    members = rows(records, BENCHMARK)
    assert {row.family for row in members} == {"corrected"}
    assert {row.label for row in members} >= {"k=10, max_rounds=3", "k=10, patience=1"}
    lines = commands(BENCHMARK, members)
    assert any(line.endswith("--set k=10 --set max_rounds=3") for line in lines)


def test_runs_with_different_settings_are_never_averaged():
    records = [record(test=1.0), record(test=0.0, sets=["k=10", "lr=0.1"])]
    assert [row.sample.mean for row in rows(records, BENCHMARK) if row.sample] == [1.0, 0.0]


def test_one_seed_has_neither_a_standard_deviation_nor_a_p():
    row = row_of(rows([record(), record("gat", test=0.2)], BENCHMARK), "gat")
    assert math.isnan(row.p)
    assert math.isnan(row.p_holm)
    assert "| k=10 | GAT | 1 | 20.0 | 20.0 | 1 | 0.0 | – | – |  |" in table_text([row])


def test_a_run_that_was_cut_off_counts_as_better_for_no_mechanism():
    whole = [*runs("gatv2", [1, 0.99, 0.98]), *runs("gat", [0.2, 0.21, 0.22])]
    assert any("is better than GAT" in sentence for sentence in headline(whole))
    for cut, ended in (("gat", "gatv2"), ("gatv2", "gat")):
        short = runs(cut, [0.2, 0.21, 0.22], ended="budget", converged=False)
        sentences = " ".join(headline([*runs(ended, [1, 0.99, 0.98]), *short]))
        assert "better" not in sentences
        assert "does not beat" not in sentences
        assert "on average" not in sentences
        assert "Not compared with GATv2, because runs were cut off: GAT (1 head)" in sentences


def test_runs_of_a_fixed_number_of_rounds_are_shown_as_ended_at_the_last_round():
    sets = ["k=10", "patience=1000"]
    records = runs("gatv2", [1.0, 0.9], sets=sets, ended="budget", converged=False)
    (row,) = rows(records, BENCHMARK)
    assert (row.not_converged, row.at_last_round) == (0, 2)
    assert "2 at the last round" in table_text([row])


SHORT = ("k=10", "max_rounds=20", "patience=20")  # the benchmark stops early


def used_up(mechanism, values, sets=SHORT):
    return runs(mechanism, values, sets=sets, ended="budget", converged=False)


def test_runs_of_the_same_shorter_number_of_rounds_are_compared_and_labelled():
    records = used_up("gatv2", [1, 0.99, 0.98]) + used_up("gat", [0.2, 0.21, 0.22])
    assert "3 at the last round" in table_text(findings(records).rows)
    (part,) = findings(records).headline
    assert part.title == "Shorter protocol (max_rounds=20, patience=20)"
    better = "GATv2 (1 head) is better than GAT (1 head) at k = 10 (p < 0.05)."
    assert better in part.sentences
    assert part.sentences[-1] == "6 of 6 runs used all of a fixed number of rounds."


def test_sentences_about_all_runs_are_a_list_of_their_own_if_there_are_several_protocols():
    records = [*used_up("gatv2", [1, 0.99]), record(test=0.9, published=True)]
    assert [part.title for part in findings(records).headline][1:] == [
        "As the released code does it",
        "All runs",
    ]


@pytest.mark.parametrize(
    "theirs",
    [
        used_up("gat", [0.2, 0.21], sets=("k=10", "max_rounds=19", "patience=19")),  # fewer rounds
        [*used_up("gat", [0.2]), record("gat", 1, 1, 0.21, sets=SHORT)],  # not all used up
        used_up("gat", [0.2, 0.21], sets=("k=10", "max_rounds=20")),  # patience 25: cut off
    ],
)
def test_runs_of_different_shorter_protocols_are_not_compared(theirs):
    rows_ = findings([*used_up("gatv2", [1, 0.99]), *theirs]).rows
    assert row_of(rows_, "gat").is_cut


def test_a_reduced_number_of_rounds_does_not_matter_to_runs_that_ended_by_themselves():
    short = runs("gatv2", [1, 0.99], sets=["k=10", "max_rounds=30"])
    assert not row_of(findings(short + runs("gat", [0.2, 0.21])).rows, "gat").is_cut


def test_results_of_runs_that_were_cut_off_are_marked_in_headline_and_figure():
    cut = record("gat", 8, test=0.3, ended="budget", converged=False)
    (line,) = [x for x in headline([record(), cut]) if x.startswith("Test accuracy")]
    assert line.endswith("GAT (8 heads) 30.0% at k = 10 (n = 1) (cut off).")
    svg = figure_3(findings([record(), cut]))
    assert points_of(svg, "cut-ours-gat-8-test_accuracy") == 1
    assert "cut-ours-gatv2" not in svg


def test_a_diverged_run_is_counted_and_not_averaged():
    lost = record(seed=1, test=math.nan, ended="diverged", converged=False)
    (row,) = rows([record(test=0.5), lost], BENCHMARK)
    assert row.sample == Sample.of([0.5])
    assert (row.diverged, row.not_converged) == (1, 1)
    assert row.ended == {"perfect": 1, "diverged": 1}
    assert "1 of 2" in table_text([row])
    assert "1 run diverged; no mean includes them." in headline([record(test=0.5), lost])


def test_a_row_of_diverged_runs_alone_has_dashes():
    members = rows([record(test=math.nan, ended="diverged", converged=False)], BENCHMARK)
    assert "| 100.0 | – | 0 | – |" in table_text(members)


def test_records_of_another_revision_are_left_out():
    old = record()
    old = replace(old, settings={**old.settings, "revision": BENCHMARK.revision + 1})
    assert rows([old], BENCHMARK) == []
    assert findings([old, record()]).num_outdated == 1
    assert "1 record of dictionary-lookup left out: made by another version" in page_text([old])


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "100.0"), (0.9997, "99.97"), (0.87, "87.0"), (math.nan, "–")]
)
def test_only_a_fraction_of_one_is_shown_as_100(value, text):
    assert number(value, TEST) == text


def test_numbers_are_listed_as_the_command_line_reads_them():
    assert ranges([4, 6, 5, 10]) == "4-6,10"


def sweep(mechanism, values, heads=1):
    """One seed per k = 4, 5, ..."""
    pairs = enumerate(values, start=4)
    return [record(mechanism, heads, test=value, sets=[f"k={k}"]) for k, value in pairs]


def test_the_headline_gives_the_results():
    records = sweep("gatv2", [1.0, 1.0, 1.0]) + sweep("gat", [0.45, 0.5, 0.43])
    assert headline(records) == [
        "Test accuracy: GATv2 (1 head) 100% at 3 of 3 values of k, 4–6; "
        "GAT (1 head) 43.0 to 50.0% at k = 4–6.",
        "GATv2 (1 head) is higher on average than GAT (1 head) at 3 of 3 values of k, 4–6 "
        "(one seed, so no test).",
    ]


def test_the_headline_starts_with_where_gatv2_does_not_beat_gat():
    lines = headline(sweep("gatv2", [1.0, 0.4, 0.3]) + sweep("gat", [0.45, 0.5, 0.43]))
    assert lines[0] == (
        "GATv2 (1 head) does not beat GAT (1 head) at k = 5–6 (30.0% against 43.0% at k = 6)."
    )
    assert "(its lowest: 30.0% at k = 6)" in lines[1]


def test_a_tie_is_no_win():
    lines = headline([record(test=0.5), record("gat", test=0.5)])
    assert lines[0].startswith("GATv2 (1 head) does not beat GAT (1 head)")


def test_the_headline_names_other_mechanisms_that_gatv2_does_not_beat():
    assert (
        "GATv2 (1 head) does not beat DPGAT (1 head) at k = 10 (100.0% against 100.0% at k = 10)."
        in headline([record(), record("dpgat")])
    )


def at_k(mechanism, k, values, heads=1):
    return runs(mechanism, values, heads, sets=[f"k={k}"])


def test_the_headline_says_better_only_of_differences_that_are_significant_after_holm():
    """At k = 5 and 6, p is 0.047: significant without the correction, but not with it."""
    unsure = [0.50, 0.52, 0.54, 0.56], [0.474, 0.494, 0.514, 0.534]
    records = at_k("gatv2", 4, [0.9, 0.91, 0.92]) + at_k("gat", 4, [0.1, 0.11, 0.12])
    for k in (5, 6):
        records += at_k("gatv2", k, unsure[0]) + at_k("gat", k, unsure[1])
    members = findings(records).rows
    for k, row in zip((4, 5, 6), [row for row in members if row.mechanism == "gat"], strict=True):
        assert row.num_tests == 3
        assert (row.p_holm < 0.05) == (k == 4)
    lines = headline(records)
    assert [line for line in lines if "better" in line] == [
        "GATv2 (1 head) is better than GAT (1 head) at 1 of 3 values of k, 4 "
        "(p < 0.05 after Holm's correction for the 3 tests against GAT)."
    ]
    assert (
        "GATv2 (1 head) is higher on average than GAT (1 head) at 2 of 3 values of k, 5–6 "
        "(not significant after Holm's correction for the 3 tests against GAT)." in lines
    )


@pytest.mark.parametrize("seed", range(5))
def test_better_is_said_of_exactly_the_significant_rows(seed):
    """Random results at eight values of k, with differences around the limit of significance."""
    draw = np.random.default_rng(seed)
    records = []
    for k in range(4, 12):
        records += at_k("gatv2", k, draw.normal(0.6, 0.05, 5))
        records += at_k("gat", k, draw.normal(0.6 - draw.uniform(-0.05, 0.25), 0.05, 5))
    significant = [
        row.swept["k"] for row in findings(records).rows if row.gain > 0 and row.p_holm < 0.05
    ]
    lines = [line for line in headline(records) if "better" in line]
    assert len(lines) == bool(significant)
    if significant:
        count = f"at {len(significant)} of 8 values of k, "
        listed = ranges(significant).replace("-", "–").replace(",", ", ")
        assert f"is better than GAT (1 head) {count}{listed} (p < 0.05" in lines[0]


def test_a_single_test_needs_no_correction():
    records = runs("gatv2", [0.9, 0.91]) + runs("gat", [0.1, 0.11])
    assert "GATv2 (1 head) is better than GAT (1 head) at k = 10 (p < 0.05)." in headline(records)
    records = runs("gatv2", [0.5, 0.7]) + runs("gat", [0.4, 0.6])
    assert (
        "GATv2 (1 head) is higher on average than GAT (1 head) at k = 10 (not significant)."
        in headline(records)
    )


def test_the_headline_names_the_gatv2_that_each_row_was_compared_with():
    records = runs("gatv2", [0.9, 0.91]) + runs("gat", [0.1, 0.11])
    records += runs("gatv2", [0.8, 0.81], 8) + runs("gat", [0.2, 0.21], 8)
    after = "at k = 10 (p < 0.05 after Holm's correction for the 2 tests against GAT)."
    lines = headline(records)
    assert f"GATv2 (1 head) is better than GAT (1 head) {after}" in lines
    assert f"GATv2 (8 heads) is better than GAT (8 heads) {after}" in lines


def test_the_headline_says_where_ours_is_below_the_papers():
    records = sweep("gatv2", [1.0, 0.8, 0.985]) + sweep("gat", [0.44, 0.5, 0.5])
    (below,) = [line for line in headline(records) if line.startswith("Below")]
    assert below == (
        "Below the published number by more than one point: "
        "GATv2 (1 head) at k = 5–6 (80.0% against 100.0% at k = 5, the farthest)."
    )


def test_the_headline_separates_the_results_of_the_released_code():
    ours, released = findings([record(), record(test=0.9, published=True)]).headline
    assert (ours.title, released.title) == ("Corrected", "As the released code does it")
    assert "Test accuracy: GATv2 (1 head) 90.0% at k = 10 (n = 1)." in released.sentences
    assert "Test accuracy: GATv2 (1 head) 100% at k = 10." in ours.sentences


def test_of_errors_the_headline_prefers_the_lower():
    error = Metric("mean_error", "mean error", lambda *_: 0.0, higher_is_better=False)
    benchmark = replace(BENCHMARK, metric=error, published=())

    def lines(ours, theirs):
        records = [
            record(metrics={"mean_error": ours}),
            record("gat", metrics={"mean_error": theirs}),
        ]
        return headline(records, benchmark)

    assert lines(2.0, 1.0)[0] == "GATv2 (1 head) does not beat GAT (1 head) (2 against 1)."
    assert lines(1.0, 2.0)[-1] == (
        "GATv2 (1 head) is lower on average than GAT (1 head) (one seed, so no test)."
    )


def test_the_terminal_needs_at_most_100_columns():
    records = runs("gatv2", [1.0, 1.0]) + runs("gat", [0.25, 0.5], heads=8)
    text = printed(records)
    assert max(map(len, text.splitlines())) <= 100
    assert re.search(r"k=10 +GAT +8 +87\.0 +37\.5 ± 17\.7 +2 +−49\.5", text)


def test_the_commands_reproduce_the_runs():
    records = runs("gat", [0.5, 0.5], 8, sets=["k=4"], published=True)
    records += runs("gat", [0.5, 0.5], 8, sets=["k=5"], published=True)
    records += runs("gatv2", [1.0], sets=["k=5", "split=random", "loops=gat,gatv2"])
    assert commands(BENCHMARK, rows(records, BENCHMARK)) == [
        "dynagat run dictionary-lookup --mechanism gat --heads 8 --seeds 0-1"
        " --as-published --set k=4-5",
        "dynagat run dictionary-lookup --mechanism gatv2 --heads 1 --seeds 0"
        " --set k=5 --set split=random --set loops=gat,gatv2",
    ]


def points_of(svg, gid):
    """The number of markers of the line with this id."""
    tree = ElementTree.fromstring(svg)
    (line,) = [g for g in tree.iter(f"{SVG}g") if g.get("id", "").endswith(gid)]
    return len(list(line.iter(f"{SVG}use")))


def test_figure_3_has_a_point_per_k_of_ours_and_of_the_papers():
    records = [r for k in (4, 5, 9) for r in runs("gat", [0.4, 0.6], 8, sets=[f"k={k}"])]
    records += runs("gatv2", [1.0], sets=["k=30"])  # beyond the figure
    svg = figure_3(findings(records))
    assert points_of(svg, "ours-gat-8-test_accuracy") == 3
    assert points_of(svg, "paper-gat-8-test_accuracy") == 17
    assert "ours-gatv2" not in svg
    assert svg == figure_3(findings(records))


def test_the_gin_figure_has_the_papers_points():
    svg = gin_figure(findings([record("gin", sets=["k=20"])]))
    assert points_of(svg, "ours-gin-1-train_accuracy") == 1
    assert points_of(svg, "paper-gin-1-train_accuracy") == 7


def test_figure_1_prints_every_weight_of_gat_and_gatv2():
    static, dynamic = favouring(lambda _: 3, 10, 0.3), favouring(lambda i: i, 10, 0.9)
    records = [
        record("gat", exhibits=attention([static])),
        record("gatv2", exhibits=attention([dynamic])),
    ]
    svg = figure_1(findings(records))
    tree = ElementTree.fromstring(svg)
    texts = ["".join(each.itertext()).strip() for each in tree.iter(f"{SVG}text")]
    printed = [text for text in texts if re.fullmatch(r"\.\d\d", text)]
    assert printed == [
        f"{w:.2f}"[1:] for weights in (static, dynamic) for row in weights for w in row
    ]


def test_there_are_no_figures_without_records():
    for draw in (figure_1, figure_3, gin_figure):
        assert draw(findings([])) is None


def test_figure_1_leaves_out_self_loops_and_diverged_runs():
    looped = [[*row, 0.5] for row in favouring(lambda _: 3, 10, 0.3)]
    broken = [[None] * 10] * 10
    ours = record("gatv2", exhibits=attention([favouring(lambda i: i, 10, 0.9)]))
    exhibit = attention([looped])
    exhibit["attention"]["values"] = [list(range(10))]
    assert ">.50<" not in figure_1(findings([record("gat", exhibits=exhibit), ours]))
    assert figure_1(findings([record("gat", exhibits=attention([broken])), ours])) is None


K = 5


def shown_records():
    """GAT with 2 heads, GATv2 and DPGAT with one, each with the attention of two graphs."""
    fixed = [favouring(lambda _, key=key: key, K, 0.4) for key in (2, 4, 1, 3)]
    own = favouring(lambda i: i, K, 0.8)
    shifted = favouring(lambda i: (i + 1) % K, K, 0.6)
    records = []
    for seed in (0, 1):
        sets = {"seed": seed, "sets": [f"k={K}"]}
        own_key = attention([own], [shifted])
        records.append(record("gat", 2, test=0.3, exhibits=attention(fixed[:2], fixed[2:]), **sets))
        records.append(record("gatv2", 1, test=1.0, exhibits=own_key, **sets))
        records.append(record("dpgat", 1, test=0.9, exhibits=own_key, **sets))
    records.append(record("gatv2", published=True, sets=["k=4"], exhibits=attention([fixed[0]])))
    return records


# The parts of a report


def shown_tables():
    """Records with several tables: two fidelities, two metrics, costs and departures."""
    records = runs("gatv2", [1.0, 0.9]) + runs("gat", [0.25, 0.5], 8) + runs("gin", [0.8])
    records += runs("gatv2", [0.7, 0.71], published=True) + runs("gat", [0.5, 0.51], published=True)
    return [
        replace(each, round_seconds=[[3.0, 1.0]], history=[{"train": 1.0, "valid": 0.5, "step": 1}])
        for each in records
    ]


def all_tables(records):
    return [part for section in findings(records).sections for part in section.parts
            if isinstance(part, Table)]  # fmt: skip


def texts_of(markup):
    """Cells of the tables of an HTML page, by title: [[text of a cell]]."""
    tables = {}
    for title, body in re.findall(
        r'<table class="data" data-title="([^"]*)">(.*?)</table>', markup, re.DOTALL
    ):
        lines = re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL)
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL) for line in lines]
        plain = [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in line] for line in cells]
        tables[html.unescape(title)] = plain
    return tables


def test_terminal_markdown_and_page_show_the_same_tables(tmp_path):
    records = shown_tables()
    tables = all_tables(records)
    titles = [each.title for each in tables]
    assert len(titles) == len(set(titles))
    assert {"Test accuracy, per cent (corrected)", "Train accuracy, per cent (as-published)",
            "Time and memory"} <= set(titles)  # fmt: skip
    on_page = texts_of(page_text(records))
    write_markdown(findings(records), tmp_path)
    in_markdown = (tmp_path / f"{BENCHMARK.name}.md").read_text()
    in_terminal = [line.split() for line in printed(records).splitlines()]
    for each in tables:
        lines = [each.columns, *(line.cells for line in each.lines)]
        assert on_page.pop(each.title) == [list(line) for line in lines]
        assert table(each) in in_markdown
        if each.brief:
            for line in lines:
                assert " ".join(line).split() in in_terminal
    assert not on_page


def test_the_terminal_shows_the_tables_of_the_main_metric_only():
    brief = [each.title for each in all_tables(shown_tables()) if each.brief]
    assert brief == [
        "Test accuracy, per cent (corrected)",
        "Test accuracy, per cent (as-published)",
    ]


def test_a_table_of_single_seeds_has_no_table_of_tests():
    titles = [each.title for each in all_tables(runs("gatv2", [1.0]) + runs("gat", [0.5]))]
    assert "Test accuracy, per cent (corrected)" in titles
    assert not any(title.startswith("All tests") for title in titles)


def test_a_result_table_has_a_table_of_all_tests():
    ours, theirs = [0.9, 0.95, 1.0, 0.98], [0.5, 0.7, 0.6, 0.55]
    ((_, family),) = families(rows(runs("gatv2", ours) + runs("gat", theirs), BENCHMARK))
    (line,) = [line.cells for line in details_table(family).lines if "GAT" in line.cells]
    tests = contrast(dict(enumerate(ours)), dict(enumerate(theirs)))
    low, high = bootstrap_interval(theirs)
    p_values = [tests.student.two_sided, tests.welch.one_sided, tests.welch.two_sided,
                tests.paired.one_sided, tests.paired.two_sided]  # fmt: skip
    assert line == (
        "k=10", "GAT", "1", f"{100 * low:.1f} to {100 * high:.1f}", f"{tests.effect_size:.2f}",
        *("<0.001" if p < 0.001 else f"{p:.3f}" for p in p_values), "1", "4 perfect", "Figure 3",
    )  # fmt: skip


def test_the_page_closes_what_is_folded_and_markdown_does_too(tmp_path):
    records = shown_tables()
    write_markdown(findings(records), tmp_path)
    for text in (page_text(records), (tmp_path / f"{BENCHMARK.name}.md").read_text()):
        folded = [html.unescape(each) for each in re.findall(r"<summary>(.*?)</summary>", text)]
        assert (
            "All tests, intervals and effect sizes: test accuracy, per cent (corrected)" in folded
        )
        assert "The commands that make these runs" in folded
        assert "Test accuracy, per cent (corrected)" not in folded


def test_the_report_and_the_command_line_name_no_benchmark():
    names = [*BENCHMARKS, "own-graph"]
    patterns = [name.replace("-", "[-_]?") for name in names]
    pattern = re.compile(rf"(?<![a-z])({'|'.join(patterns)})(?![a-z])", re.IGNORECASE)
    for text in ("dictionary_lookup", "DICTIONARY_LOOKUP", "edge_noise.figures", '"own-graph"'):
        assert pattern.search(text)
    package = Path(dynagat.__file__).parent
    files = [path for room in ("report", "cli") for path in (package / room).rglob("*")
             if path.is_file() and "__pycache__" not in path.parts]  # fmt: skip
    assert len(files) > 30
    lines = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in files
        for line in path.read_text().splitlines()
        if pattern.search(line)
    ]
    assert lines == []


# The page


def test_the_page_needs_no_network(tmp_path):
    written = write_report(shown_records(), [BENCHMARK], tmp_path / "new" / "folder")
    text = written.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", text)
    assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import|fetch\(|XMLHttpRequest", text)
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not [name for name in os.listdir(written.parent) if name.startswith(".")]


def test_a_page_without_records_says_which_command_to_run():
    text = page_text([])
    assert "dynagat run dictionary-lookup" in text
    assert "has not been run yet" in text


def test_a_line_counts_the_records_of_unknown_benchmarks():
    stranger = replace(record(), benchmark="tea-leaves")
    assert "1 record of tea-leaves left out" in page_text([stranger, record()])


def test_texts_of_records_are_escaped():
    odd = replace(record(), commit="<script>x</script>", versions={"a": "</script><b>"})
    odd = replace(odd, benchmark=BENCHMARK.name)
    text = page_text([odd, replace(record(), benchmark="<i>odd</i>")])
    assert "<script>x" not in text
    assert "</script><b>" not in text
    assert "<i>odd" not in text


def test_a_diverged_run_is_on_the_page():
    broken = attention([[[None] * K] * K])
    lost = record(test=math.nan, ended="diverged", converged=False, exhibits=broken)
    assert "diverged" in page_text([lost])
    nan = attention([[[math.nan] * K] * K])
    assert page_text([replace(lost, exhibits=nan)])


def test_a_page_of_many_records_stays_small_and_counts_what_it_leaves_out():
    weights = [favouring(lambda i: i, 12, 0.5)] * 8
    exhibit = attention(*[weights] * 4)
    records = [
        record("gat", 8, seed, 0.5, sets=[f"k={k}"], exhibits=exhibit)
        for k in range(4, 24)
        for seed in range(50)
    ]
    shown, num_left_out = shown_runs(findings(records))
    assert len(shown) == 40
    assert num_left_out == 960
    text = page_text(records)
    assert "960 more" in text
    assert len(text) < 4_000_000


def test_a_page_that_can_not_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "index.html").write_text("before")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_report([record()], [BENCHMARK], tmp_path)
    assert os.path.dirname(caught.value.filename) == str(tmp_path)
    assert os.listdir(tmp_path) == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "before"


@pytest.fixture
def opened(look_at, tmp_path):
    """Opens the page of records."""
    return lambda records, width=1280: look_at(
        write_report(records, [BENCHMARK], tmp_path), width=width, height=800
    )


def panel_of(view, index):
    return view.locator(".panel").nth(index)


def shown_ranking(panel):
    """[(key, weight)] of the bars, from the top."""
    texts = [item.inner_text().split() for item in panel.locator(".bars li").all()]
    return [(int(words[1]), float(words[2])) for words in texts]


def ranking_of(weights, query):
    row = weights[query]
    return [(key, row[key]) for key in sorted(range(len(row)), key=lambda key: (-row[key], key))]


def check_ranking(panel, weights, query):
    expected = ranking_of(weights, query)
    shown = shown_ranking(panel)
    assert [key for key, _ in shown] == [key for key, _ in expected]
    assert [w for _, w in shown] == pytest.approx([w for _, w in expected], abs=6e-4)
    key, weight = expected[0]
    words = panel.locator(".ranking").inner_text()
    assert words.startswith(f"query {query} ranks: key {key} {weight:.2f}")


def test_the_page_opens_with_gat_next_to_gatv2_and_a_verdict_on_each(opened):
    view = opened(shown_records())
    left, right = panel_of(view, 0), panel_of(view, 1)
    assert left.locator(".mechanism").input_value() == "GAT (2 heads)"
    assert right.locator(".mechanism").input_value() == "GATv2 (1 head)"
    static, dynamic = (panel.locator(".verdict").inner_text() for panel in (left, right))
    assert static == (
        "Static: all 5 queries rank key 2 first, and rank all keys in the same order. "
        "This run: test accuracy 30.0%."
    )
    assert dynamic.startswith("Dynamic: 5 different first choices for 5 queries, each its own key.")


def test_clicking_a_query_shows_its_ranking_in_both_panels(opened):
    records = shown_records()
    view = opened(records)
    weights = [each.exhibits["attention"]["weights"] for each in records]
    for query in (4, 1):
        panel_of(view, 0).locator(f"tr[data-query='{query}'] td").nth(2).click()
        check_ranking(panel_of(view, 0), weights[0][0][0], query)
        check_ranking(panel_of(view, 1), weights[1][0][0], query)
        assert view.locator(f"polyline.chosen[data-query='{query}']").count() == 2
        assert view.locator("tr[aria-current='true']").count() == 2


def test_graph_head_and_mechanism_can_be_picked(opened):
    records = shown_records()
    view = opened(records)
    left, right = panel_of(view, 0), panel_of(view, 1)
    gat, gatv2 = (each.exhibits["attention"]["weights"] for each in records[:2])
    query = 3

    left.locator(".head").select_option(label="2")
    assert "rank key 4 first" in left.locator(".verdict").inner_text()
    check_ranking(left, gat[0][1], query)

    view.get_by_role("button", name="2", exact=True).click()
    assert "rank key 3 first" in left.locator(".verdict").inner_text()
    assert "5 different first choices for 5 queries, 0 of them" in (
        right.locator(".verdict").inner_text()
    )
    check_ranking(left, gat[1][1], query)
    check_ranking(right, gatv2[1][0], query)

    left.locator(".mechanism").select_option("DPGAT (1 head)")
    assert left.locator(".verdict").inner_text().startswith("Dynamic")
    assert "90.0%" in left.locator(".verdict").inner_text()
    assert left.locator("tbody td").first.inner_text() == f"{gatv2[1][0][0][0]:.2f}"[1:]


def test_other_settings_and_seeds_can_be_picked(opened):
    view = opened(shown_records())
    view.locator("#seed").select_option("1")
    assert panel_of(view, 0).locator(".mechanism").input_value() == "GAT (2 heads)"
    view.locator("#family").select_option("as-published")
    assert view.locator("#settings").input_value() == "k=4"
    assert panel_of(view, 0).locator(".mechanism").input_value() == "GATv2 (1 head)"


def test_the_keyboard_walks_through_the_queries(opened):
    view = opened(shown_records())
    view.locator("tr[aria-current='true'] button").first.focus()
    view.keyboard.press("ArrowUp")
    words = panel_of(view, 1).locator(".ranking").inner_text()
    assert words.startswith("query 2 ranks: key 2")


def test_queries_that_agree_only_on_the_first_key_are_called_static(opened):
    weights = [[0.6, 0.3, 0.1], [0.6, 0.1, 0.3], [0.6, 0.2, 0.2]]
    view = opened([record("gatv2", exhibits=attention([weights]))])
    words = view.locator(".verdict").inner_text()
    assert words.startswith("Static: all 3 queries rank key 0 first, but rank the other keys")


def test_weights_that_round_to_a_tie_contradict_no_ranking(opened):
    weights = [[0.5001, 0.2001, 0.2998], [0.4, 0.3, 0.3], [0.3334, 0.3333, 0.3333]]
    view = opened([record("gat", exhibits=attention([weights]))])
    assert (
        "key 0 first, and rank all keys in the same order" in view.locator(".verdict").inner_text()
    )


def test_a_diverged_run_has_no_verdict(opened):
    view = opened([record("gatv2", exhibits=attention([[[None] * 3] * 3]))])
    assert view.locator(".verdict").inner_text().startswith("No verdict: this run diverged")


def test_without_gat_another_mechanism_is_next_to_gatv2(opened):
    exhibit = attention([favouring(lambda i: i, K, 0.8)])
    view = opened([record("dpgat", exhibits=exhibit), record("gatv2", exhibits=exhibit)])
    titles = [panel_of(view, index).locator(".mechanism").input_value() for index in (0, 1)]
    assert set(titles) == {"GATv2 (1 head)", "DPGAT (1 head)"}


def test_a_page_without_attention_opens(opened):
    view = opened([record()])
    assert "There is no run with attention" in view.locator(".explore").inner_text()


@pytest.mark.parametrize("width", [360, 768, 1030])
def test_the_page_does_not_scroll_sideways(opened, width):
    records = shown_records() + runs("gat", [0.25, 0.5], 8, sets=["k=10", "max_rounds=3", "lr=0.1"])
    records += [r for k in (10, 11) for r in runs("gatv2", [1.0, 0.9], sets=[f"k={k}"])]
    records.append(
        record("gat", exhibits=attention([favouring(lambda _: 3, 12, 0.3)]), sets=["k=12"])
    )
    view = opened(records, width)
    for summary in view.locator("summary").all():
        if summary.is_visible():
            summary.click()
    inner, whole = view.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert whole <= inner
    view.locator("#settings").select_option("k=12")
    assert view.evaluate("document.documentElement.scrollWidth") <= inner


# Our improvements


def test_runs_with_our_improvements_are_shown_as_improved_and_not_beside_the_paper():
    ours = ["k=10", "start=positive", "label_smoothing=0.1"]
    old = [*ours, "valid_pairs=shared"]
    (row,) = rows([record(sets=ours, fidelity="corrected")], BENCHMARK)
    assert (row.family, row.is_standard, row.published) == ("improved", True, None)
    (row,) = rows([record(sets=old)], BENCHMARK)
    assert row.family == "improved, valid_pairs=shared"
    assert (row.fidelity, row.is_standard) == ("improved", True)
    (row,) = rows([record()], BENCHMARK)
    assert (row.family, row.published.mean) == ("corrected", 1.0)


def test_the_command_of_improved_runs_makes_them_again():
    settings = improved(grid(BENCHMARK.settings, ["k=10"])[0])
    sets = ["k=10", "start=positive", "label_smoothing=0.1"]
    found = rows([record(sets=sets)], BENCHMARK)
    assert commands(BENCHMARK, found) == [
        "dynagat run dictionary-lookup --mechanism gatv2 --heads 1 --seeds 0 --improved --set k=10"
    ]
    assert BENCHMARK.with_settings(settings).key("gatv2", 0) == record(sets=sets).key


def test_improved_runs_have_a_figure_of_their_own_without_the_papers_numbers():
    sets = ["k=10", "start=positive", "label_smoothing=0.1"]
    findings = Findings.of([record(sets=sets)], BENCHMARK)
    assert figure_3(findings) is None
    svg = figure_3(findings, improved=True)
    assert "ours-gatv2-1-test_accuracy" in svg
    assert "paper-gatv2" not in svg
