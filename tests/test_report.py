"""The report: rows, sentences, figures and the page say what the records hold, and no more."""

from __future__ import annotations

import io
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from rich.console import Console

from dynagat.benchmarks import find
from dynagat.experiment import Record, as_published
from dynagat.experiment.settings import as_dict, grid
from dynagat.report import (
    families,
    figure_1,
    figure_3,
    gin_figure,
    headline,
    markdown,
    print_tables,
    rows,
    write_report,
)
from dynagat.report.attention import shown_runs
from dynagat.report.page import page
from dynagat.report.provenance import commands
from dynagat.report.wording import number, several
from dynagat.significance import Sample, bootstrap_interval, compare, student

BENCHMARK = find("dictionary-lookup")
SVG = "{http://www.w3.org/2000/svg}"


def record(mechanism="gatv2", heads=1, seed=0, test=1.0, train=1.0, *, sets=("k=10",), **changes):
    """A record of our own making; `sets` are as for --set, `published` is --as-published."""
    settings = BENCHMARK.settings
    if changes.pop("published", False):
        settings = as_published(settings)
    (settings,) = grid(settings, list(sets))
    benchmark = BENCHMARK.with_settings(settings).with_heads(heads)
    made = Record(
        key=benchmark.key(mechanism, seed),
        benchmark=benchmark.name,
        mechanism=mechanism,
        heads=heads,
        seed=seed,
        fidelity="corrected",
        settings=as_dict(benchmark.settings, whole=False) | {"revision": benchmark.revision},
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
    return replace(made, **changes)


def runs(mechanism, values, heads=1, **options):
    return [record(mechanism, heads, seed, value, **options) for seed, value in enumerate(values)]


def row_of(found, mechanism, heads=1):
    (row,) = [each for each in found if (each.mechanism, each.heads) == (mechanism, heads)]
    return row


def attention(*graphs):
    """An exhibit of [head][query][key] weights of graphs."""
    k = len(graphs[0][0])
    return {"attention": {"values": [list(range(k))] * len(graphs), "weights": list(graphs)}}


def looking_at(favourite, k, weight):
    """[query][key]: query i gives `weight` to key favourite(i), the rest in falling order."""
    shares = [(k - key) * (1 - weight) / (k * (k + 1) / 2) for key in range(k)]
    found = []
    for query in range(k):
        row = list(shares)
        row[favourite(query)] += weight
        found.append([round(each, 4) for each in row])
    return found


def test_a_hand_made_record_is_a_record():
    made = record("gat", 8)
    assert Record.from_json(made.to_json()).key == made.key


def test_a_row_sums_up_its_seeds():
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
    ("mechanism", "heads", "k", "metric", "mean"),
    [
        ("gat", 8, 10, "test_accuracy", 0.87),
        ("gat", 1, 4, "train_accuracy", 0.85),
        ("gin", 1, 30, "test_accuracy", 0.35),
        ("gatv2", 1, 100, "test_accuracy", 1.0),
        ("dpgat", 1, 10, "test_accuracy", None),
        ("gat", 4, 10, "test_accuracy", None),
        ("gat", 8, 21, "test_accuracy", None),
    ],
)
def test_a_row_has_the_number_the_paper_prints_for_it(mechanism, heads, k, metric, mean):
    (row,) = rows([record(mechanism, heads, sets=[f"k={k}"])], BENCHMARK, metric)
    assert (row.published and row.published.mean) == mean


def test_p_is_that_of_gatv2_against_the_row():
    ours, theirs = [0.9, 0.95, 1.0], [0.5, 0.7, 0.6]
    found = rows(runs("gatv2", ours) + runs("gat", theirs, heads=8), BENCHMARK)
    row = row_of(found, "gat", 8)
    assert row.against == 1
    assert row.p == student(Sample.of(ours), Sample.of(theirs))
    assert row.comparison == compare(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert row_of(found, "gatv2").comparison is None


def test_gatv2_with_as_many_heads_is_preferred():
    records = runs("gatv2", [0.9, 0.8]) + runs("gatv2", [0.7, 0.6], 8) + runs("gat", [0.1, 0.2], 8)
    assert row_of(rows(records, BENCHMARK), "gat", 8).against == 8


def test_holms_correction_is_over_a_family():
    records = runs("gatv2", [0.9, 0.95, 1.0]) + runs("gat", [0.5, 0.7, 0.6])
    records += runs("gat", [0.8, 0.9, 0.85], heads=8) + runs("dpgat", [0.9, 0.97, 1.0])
    apart = runs("gatv2", [0.9, 0.8], sets=["k=10", "split=random"])
    apart += runs("gat", [0.5, 0.7], sets=["k=10", "split=random"])
    found = dict(families(rows(records + apart, BENCHMARK)))
    tested = sorted((r for r in found["corrected"] if r.comparison), key=lambda row: row.p)
    expected, highest = [], 0.0
    for rank, row in enumerate(tested):
        highest = max(highest, min(1.0, (3 - rank) * row.p))
        expected.append(highest)
    assert [row.p_holm for row in tested] == pytest.approx(expected)
    assert row_of(found["corrected, split=random"], "gat").p_holm == pytest.approx(
        row_of(found["corrected, split=random"], "gat").p
    )


def test_settings_that_make_the_fidelity_are_shown_by_its_name():
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
    found = rows(records, BENCHMARK)
    assert {row.family for row in found} == {"corrected"}
    assert {row.label for row in found} >= {"k=10, max_rounds=3", "k=10, patience=1"}
    told = commands(BENCHMARK, found)
    assert any(line.endswith("--set k=10 --set max_rounds=3") for line in told)


def test_runs_of_other_settings_are_never_averaged():
    records = [record(test=1.0), record(test=0.0, sets=["k=10", "lr=0.1"])]
    assert [row.sample.mean for row in rows(records, BENCHMARK) if row.sample] == [1.0, 0.0]


def test_one_seed_has_neither_deviation_nor_p():
    row = row_of(rows([record(), record("gat", test=0.2)], BENCHMARK), "gat")
    assert math.isnan(row.p)
    assert math.isnan(row.p_holm)
    text = markdown([row])
    assert "| k=10 | GAT | 1 | 20.0 | 20.0 | 1 | 0.0 | – | – |  |" in text


def test_a_diverged_run_is_counted_and_not_averaged():
    lost = record(seed=1, test=math.nan, ended="diverged", converged=False)
    found = rows([record(test=0.5), lost], BENCHMARK)
    assert found[0].sample == Sample.of([0.5])
    assert (found[0].diverged, found[0].not_converged) == (1, 1)
    assert found[0].ended == {"perfect": 1, "diverged": 1}
    assert "1 of 2" in markdown(found)
    assert any("gave no number" in line for line in headline(BENCHMARK, found))


def test_nothing_but_diverged_runs_is_a_row_of_dashes():
    found = rows([record(test=math.nan, ended="diverged", converged=False)], BENCHMARK)
    assert "| 100.0 | – | 0 | – |" in markdown(found)


def test_records_of_another_revision_are_left_out():
    old = record()
    old = replace(old, settings={**old.settings, "revision": BENCHMARK.revision + 1})
    assert rows([old], BENCHMARK) == []
    assert "of another revision" in page([old], [BENCHMARK])


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "100.0"), (0.9997, "99.97"), (0.87, "87.0"), (math.nan, "–")]
)
def test_only_a_full_share_is_shown_as_100(value, text):
    assert number(value, "test_accuracy") == text


def test_numbers_are_listed_as_the_command_line_reads_them():
    assert several([4, 6, 5, 10]) == "4-6,10"


def sweep(mechanism, values, heads=1):
    """One seed per k = 4, 5, ..."""
    pairs = enumerate(values, start=4)
    return [record(mechanism, heads, test=value, sets=[f"k={k}"]) for k, value in pairs]


def test_the_headline_says_what_was_reached():
    records = sweep("gatv2", [1.0, 1.0, 1.0]) + sweep("gat", [0.45, 0.5, 0.43])
    lines = headline(BENCHMARK, rows(records, BENCHMARK))
    assert lines == [
        "Test accuracy: GATv2 (1 head) 100% at 3 of 3 values of k, 4–6; "
        "GAT (1 head) 43.0 to 50.0% at k = 4–6.",
        "GATv2 (1 head) is better than GAT (1 head) at 3 of 3 values of k, 4–6 "
        "(one seed, so no test).",
    ]


def test_the_headline_first_says_where_gatv2_does_not_beat_gat():
    records = sweep("gatv2", [1.0, 0.4, 0.3]) + sweep("gat", [0.45, 0.5, 0.43])
    lines = headline(BENCHMARK, rows(records, BENCHMARK))
    assert lines[0] == (
        "GATv2 (1 head) does not beat GAT (1 head) at k = 5–6 (30.0% against 43.0% at k = 6)."
    )
    assert "(its lowest: 30.0% at k = 6)" in lines[1]


def test_a_tie_is_no_win():
    found = rows([record(test=0.5), record("gat", test=0.5)], BENCHMARK)
    assert headline(BENCHMARK, found)[0].startswith("GATv2 (1 head) does not beat GAT (1 head)")


def test_the_headline_says_whom_else_gatv2_does_not_beat():
    lines = headline(BENCHMARK, rows([record(), record("dpgat")], BENCHMARK))
    assert (
        "GATv2 (1 head) does not beat DPGAT (1 head) at k = 10 (100.0% against 100.0% at k = 10)."
        in lines
    )


def test_the_headline_says_where_ours_is_below_the_papers():
    records = sweep("gatv2", [1.0, 0.8, 0.985]) + sweep("gat", [0.44, 0.5, 0.5])
    lines = headline(BENCHMARK, rows(records, BENCHMARK))
    (below,) = [line for line in lines if line.startswith("Below")]
    assert below == (
        "Below the paper's number by more than one point: "
        "GATv2 (1 head) at k = 5–6 (80.0% against 100.0% at k = 5, the farthest)."
    )


def test_the_headline_tells_the_released_codes_results_apart():
    found = rows([record(), record(test=0.9, published=True)], BENCHMARK)
    lines = headline(BENCHMARK, found)
    assert (
        "As the released code does it: test accuracy: GATv2 (1 head) 90.0% at k = 10 (n = 1)."
        in lines
    )


def test_the_headline_reads_errors_the_other_way_round():
    benchmark = replace(BENCHMARK, metric="mean_error", published=())
    records = [
        record(metrics={"mean_error": 2.0}),
        record("gat", metrics={"mean_error": 1.0}),
    ]
    lines = headline(benchmark, rows(records, benchmark))
    assert lines[0] == "GATv2 (1 head) does not beat GAT (1 head) (2 against 1)."


def test_the_table_fits_a_hundred_columns():
    records = runs("gatv2", [1.0, 1.0]) + runs("gat", [0.25, 0.5], heads=8)
    console = Console(width=100, file=io.StringIO())
    print_tables(console, records, [BENCHMARK])
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    assert re.search(r"k=10 +GAT +8 +87\.0 +37\.5 ± 17\.7 +2 +−49\.5", text)


def test_each_command_makes_the_runs_it_stands_for():
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
    """How many markers the line of that name has."""
    tree = ElementTree.fromstring(svg)
    (line,) = [g for g in tree.iter(f"{SVG}g") if g.get("id", "").endswith(gid)]
    return len(list(line.iter(f"{SVG}use")))


def test_figure_3_has_a_point_per_k_of_ours_and_of_the_papers():
    records = [r for k in (4, 5, 9) for r in runs("gat", [0.4, 0.6], 8, sets=[f"k={k}"])]
    records += runs("gatv2", [1.0], sets=["k=30"])  # beyond the figure
    svg = figure_3(records)
    assert points_of(svg, "ours-gat-8-test_accuracy") == 3
    assert points_of(svg, "paper-gat-8-test_accuracy") == 17
    assert "ours-gatv2" not in svg
    assert svg == figure_3(records)


def test_the_gin_figure_has_the_papers_points():
    svg = gin_figure([record("gin", sets=["k=20"])])
    assert points_of(svg, "ours-gin-1-train_accuracy") == 1
    assert points_of(svg, "paper-gin-1-train_accuracy") == 7


def test_figure_1_prints_every_weight_of_gat_and_gatv2():
    static, dynamic = looking_at(lambda _: 3, 10, 0.3), looking_at(lambda i: i, 10, 0.9)
    records = [
        record("gat", exhibits=attention([static])),
        record("gatv2", exhibits=attention([dynamic])),
    ]
    svg = figure_1(records)
    tree = ElementTree.fromstring(svg)
    texts = ["".join(each.itertext()).strip() for each in tree.iter(f"{SVG}text")]
    printed = [text for text in texts if re.fullmatch(r"\.\d\d", text)]
    assert printed == [
        f"{w:.2f}"[1:] for weights in (static, dynamic) for row in weights for w in row
    ]


def test_figures_without_records_are_none():
    assert figure_1([]) is figure_3([]) is gin_figure([]) is None


def test_figure_1_leaves_out_self_loops_and_diverged_runs():
    looped = [[*row, 0.5] for row in looking_at(lambda _: 3, 10, 0.3)]
    broken = [[None] * 10] * 10
    ours = record("gatv2", exhibits=attention([looking_at(lambda i: i, 10, 0.9)]))
    exhibit = attention([looped])
    exhibit["attention"]["values"] = [list(range(10))]
    assert ">.50<" not in figure_1([record("gat", exhibits=exhibit), ours])
    assert figure_1([record("gat", exhibits=attention([broken])), ours]) is None


K = 5


def shown_records():
    """GAT with 2 heads, GATv2 and DPGAT with one, each with two graphs to look at."""
    fixed = [looking_at(lambda _, key=key: key, K, 0.4) for key in (2, 4, 1, 3)]
    own = looking_at(lambda i: i, K, 0.8)
    shifted = looking_at(lambda i: (i + 1) % K, K, 0.6)
    found = []
    for seed in (0, 1):
        sets = {"seed": seed, "sets": [f"k={K}"]}
        seen = {"gat": attention(fixed[:2], fixed[2:]), "gatv2": attention([own], [shifted])}
        found.append(record("gat", 2, test=0.3, exhibits=seen["gat"], **sets))
        found.append(record("gatv2", 1, test=1.0, exhibits=seen["gatv2"], **sets))
        found.append(record("dpgat", 1, test=0.9, exhibits=seen["gatv2"], **sets))
    found.append(record("gatv2", published=True, sets=["k=4"], exhibits=attention([fixed[0]])))
    return found


def test_the_page_asks_nothing_of_the_network(tmp_path):
    written = write_report(shown_records(), [BENCHMARK], tmp_path / "new" / "folder")
    text = written.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", text)
    assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import|fetch\(|XMLHttpRequest", text)
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not [name for name in os.listdir(written.parent) if name.startswith(".")]


def test_a_page_without_records_says_which_command_to_run():
    text = page([], [BENCHMARK])
    assert "dynagat run dictionary-lookup" in text
    assert "has not been run yet" in text


def test_records_of_unknown_benchmarks_are_skipped_in_a_line():
    stranger = replace(record(), benchmark="tea-leaves")
    text = page([stranger, record()], [BENCHMARK])
    assert "1 record of tea-leaves left out" in text


def test_what_records_say_is_escaped():
    odd = replace(record(), commit="<script>x</script>", versions={"a": "</script><b>"})
    odd = replace(odd, benchmark=BENCHMARK.name)
    text = page([odd, replace(record(), benchmark="<i>odd</i>")], [BENCHMARK])
    assert "<script>x" not in text
    assert "</script><b>" not in text
    assert "<i>odd" not in text


def test_a_diverged_run_is_on_the_page():
    broken = attention([[[None] * K] * K])
    lost = record(test=math.nan, ended="diverged", converged=False, exhibits=broken)
    assert "diverged" in page([lost], [BENCHMARK])
    nan = attention([[[math.nan] * K] * K])
    assert page([replace(lost, exhibits=nan)], [BENCHMARK])


def test_a_page_of_many_records_stays_small_and_says_what_it_leaves_out():
    weights = [looking_at(lambda i: i, 12, 0.5)] * 8
    exhibit = attention(*[weights] * 4)
    records = [
        record("gat", 8, seed, 0.5, sets=[f"k={k}"], exhibits=exhibit)
        for k in range(4, 24)
        for seed in range(50)
    ]
    shown, left = shown_runs(records, [BENCHMARK])
    assert len(shown) == 40
    assert left == 960
    text = page(records, [BENCHMARK])
    assert "960 more" in text
    assert len(text) < 4_000_000


def test_nothing_is_left_of_a_page_that_can_not_be_written(tmp_path, monkeypatch):
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


def panel_of(view, place):
    return view.locator(".panel").nth(place)


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


def test_the_page_opens_on_gat_beside_gatv2_and_names_what_is_seen(opened):
    view = opened(shown_records())
    left, right = panel_of(view, 0), panel_of(view, 1)
    assert left.locator(".mechanism").input_value() == "GAT (2 heads)"
    assert right.locator(".mechanism").input_value() == "GATv2 (1 head)"
    static, dynamic = (panel.locator(".verdict").inner_text() for panel in (left, right))
    assert static == (
        "Static: all 5 queries rank key 2 first, and order all keys alike. "
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


def test_queries_that_agree_on_the_first_key_only_are_static_but_not_alike(opened):
    weights = [[0.6, 0.3, 0.1], [0.6, 0.1, 0.3], [0.6, 0.2, 0.2]]
    view = opened([record("gatv2", exhibits=attention([weights]))])
    words = view.locator(".verdict").inner_text()
    assert words.startswith("Static: all 3 queries rank key 0 first, though they do not order")


def test_weights_that_round_to_a_tie_contradict_no_ranking(opened):
    weights = [[0.5001, 0.2001, 0.2998], [0.4, 0.3, 0.3], [0.3334, 0.3333, 0.3333]]
    view = opened([record("gat", exhibits=attention([weights]))])
    assert "key 0 first, and order all keys alike" in view.locator(".verdict").inner_text()


def test_a_diverged_run_has_no_verdict(opened):
    view = opened([record("gatv2", exhibits=attention([[[None] * 3] * 3]))])
    assert view.locator(".verdict").inner_text().startswith("No verdict: this run diverged")


def test_without_gat_another_mechanism_stands_beside_gatv2(opened):
    seen = attention([looking_at(lambda i: i, K, 0.8)])
    view = opened([record("dpgat", exhibits=seen), record("gatv2", exhibits=seen)])
    titles = [panel_of(view, place).locator(".mechanism").input_value() for place in (0, 1)]
    assert set(titles) == {"GATv2 (1 head)", "DPGAT (1 head)"}


def test_a_page_without_attention_opens(opened):
    view = opened([record()])
    assert "No run with attention" in view.locator(".explore").inner_text()


@pytest.mark.parametrize("width", [360, 768])
def test_the_page_does_not_scroll_sideways(opened, width):
    records = shown_records() + runs("gat", [0.25, 0.5], 8, sets=["k=10", "max_rounds=3", "lr=0.1"])
    records += [r for k in (10, 11) for r in runs("gatv2", [1.0, 0.9], sets=[f"k={k}"])]
    records.append(
        record("gat", exhibits=attention([looking_at(lambda _: 3, 12, 0.3)]), sets=["k=12"])
    )
    view = opened(records, width)
    for summary in view.locator("summary").all():
        if summary.is_visible():
            summary.click()
    inner, whole = view.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert whole <= inner
    view.locator("#settings").select_option("k=12")
    assert view.evaluate("document.documentElement.scrollWidth") <= inner
