"""The page of the paper's claims: verdicts follow from the tests by the rules it states."""

from dataclasses import replace

import pytest

from dynagat.analysis import complexity
from dynagat.analysis.theory import Certificate
from dynagat.benchmarks import find
from dynagat.benchmarks.dictionary_lookup.attention import attention_table, figure_1_paper
from dynagat.benchmarks.dictionary_lookup.claims import FINDS, FITS, STATIC, TREND
from dynagat.benchmarks.dictionary_lookup.fit import fits
from dynagat.benchmarks.dictionary_lookup.problem import figure_2
from dynagat.benchmarks.dictionary_lookup.published import FIGURE_1
from dynagat.benchmarks.dictionary_lookup.trend import trend, trend_table
from dynagat.experiment.benchmark import no_extras
from dynagat.report import claims_page, read_theorems
from dynagat.report.claims import judgements
from dynagat.report.judgement import verdict_of
from dynagat.report.theorems import Theorem, counterexample, write_theorems
from tests.test_noise_report import declining
from tests.test_noise_report import record as noise_record
from tests.test_report import BENCHMARK, attention, favouring, findings, record, runs, used_up


def at(mechanism, values_by_k, heads=1, **options):
    """{k: values of the seeds} -> records"""
    return [
        each
        for k, values in values_by_k.items()
        for each in runs(mechanism, values, heads, sets=[f"k={k}"], **options)
    ]


def judged(records, claim):
    """{protocol: (verdict, numbers)}"""
    return judged_of(records, BENCHMARK, claim)


def judged_of(records, benchmark, claim):
    every = [each for each in judgements(findings(records, benchmark)) if each.claim == claim]
    return {each.context: (each.verdict, each.numbers) for each in every}


HIGH, MIDDLE, LOW = [0.99, 0.98, 1.0], [0.5, 0.52, 0.54], [0.2, 0.21, 0.22]
NEAR = [0.49, 0.51, 0.55]  # lower than MIDDLE on average, not significantly


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ({4: HIGH, 5: HIGH}, {4: LOW, 5: LOW}, "held"),
        ({4: HIGH, 5: MIDDLE}, {4: LOW, 5: NEAR}, "held in part"),
        ({4: HIGH, 5: HIGH[:1]}, {4: LOW, 5: LOW[:1]}, "held in part"),  # one seed at k = 5
        ({4: MIDDLE}, {4: NEAR}, "higher mean, not significant"),
        ({4: MIDDLE, 5: LOW}, {4: NEAR, 5: HIGH}, "did not hold"),
        ({4: MIDDLE}, {4: MIDDLE}, "did not hold"),
        ({4: HIGH[:1]}, {4: LOW[:1]}, "not tested"),
    ],
)
def test_the_verdict_of_a_comparison_follows_from_its_tests(ours, theirs, verdict):
    records = at("gatv2", ours) + at("gat", theirs)
    ((found, _),) = judged(records, STATIC).values()
    assert found == verdict


def test_a_cut_off_run_makes_a_comparison_untested():
    records = at("gatv2", {4: HIGH}) + at("gat", {4: LOW}, ended="budget", converged=False)
    assert judged(records, STATIC) == {
        "corrected": (
            "not tested",
            "GATv2 99.0 ± 1.0, GAT (1 head) 21.0 ± 1.0 at k = 4 (n = 3);"
            " not compared, because runs were cut off.",
        )
    }


def test_a_shorter_protocol_is_named_beside_the_verdict():
    records = used_up("gatv2", HIGH) + used_up("gat", LOW)
    (context,) = judged(records, STATIC)
    assert context == "corrected; shorter protocol (max_rounds=20, patience=20)"


def test_errors_are_lower_on_average():
    assert verdict_of(0, 2, 2, 2, "lower") == "lower mean, not significant"


def test_each_protocol_has_a_verdict_and_caveats_come_last():
    shared = ["k=4", "valid_pairs=shared"]
    records = at("gatv2", {4: HIGH}) + at("gat", {4: LOW})
    records += runs("gatv2", LOW, sets=shared) + runs("gat", HIGH, sets=shared)
    records += runs("gatv2", LOW, sets=["k=4"], published=True)
    records += runs("gat", HIGH, sets=["k=4"], published=True)
    verdicts = {name: verdict for name, (verdict, _) in judged(records, STATIC).items()}
    assert verdicts == {"corrected": "held", "as-published": "did not hold"}


def test_runs_with_a_caveat_are_shown_where_there_are_no_others():
    shared = ["k=4", "valid_pairs=shared"]
    records = [*at("gatv2", {4: HIGH}), *runs("gat", LOW, sets=shared)]
    ((context, (verdict, numbers)),) = judged(records, STATIC).items()
    assert context == "corrected; validation and test share held-out pairs"
    assert (verdict, numbers) == ("not tested", "There are no runs of GATv2 beside GAT (1 head).")


def test_the_conjecture_on_degrees_has_each_number_of_heads_and_the_microscopes_verdicts():
    ddi = find("ogbl-ddi")

    def of(mechanism, values, ranking):
        head = {"agreement": {}, "weighted_agreement": {}}
        head |= {"attends": {"word": "attends"}, "ranking": {"word": ranking}}
        seen = {"microscope": {"layers": [{"heads": [head]}]}}
        return [noise_record(ddi, mechanism, seed, value, heads=heads, exhibits=seen)
                for heads in (1, 8) for seed, value in enumerate(values)]  # fmt: skip

    records = of("gatv2", LOW, "mixed") + of("gat", HIGH, "static")
    ((verdict, numbers),) = judged_of(records, ddi, ddi.claim).values()
    assert verdict == "did not hold"
    for heads in ("1 head", "8 heads"):
        assert f"GATv2 ({heads}) 21.0 ± 1.0, GAT ({heads}) 99.0 ± 1.0 (n = 3)" in numbers
        assert f"f 3 heads of GAT ({heads}), 3 attend; 3 are static" in numbers
        assert f"f 3 heads of GATv2 ({heads}), 3 attend; 3 are mixed" in numbers


def test_slopes_are_not_tested_where_runs_were_cut_off():
    noise = find("edge-noise")
    fast = [*declining("gat", 0.3), *declining("gatv2", 0.1)]
    ((_, (verdict, numbers)),) = judged_of(fast, noise, noise.claim).items()
    assert verdict == "held"
    assert "GATv2 against GAT p " in numbers
    early = {"sets": ["patience=5"]}
    cut = declining("gatv2", 0.1, ended="budget", converged=False, **early)
    every = judged_of([*declining("gat", 0.3, **early), *cut], noise, noise.claim)
    ((_, (verdict, numbers)),) = every.items()
    assert verdict == "not tested"
    assert numbers.endswith("GATv2 not compared with GAT, because runs were cut off.")


def test_reaching_a_level_counts_finished_runs_only():
    records = [record(seed=0), record(seed=1, test=0.9)]
    records += [record(seed=2, test=0.1, ended="budget", converged=False)]
    assert judged(records, FINDS) == {
        "corrected": (
            "held in part",
            "100% in 1 of 2 finished runs at k = 10 (lowest 90.0%); 1 other cut off.",
        )
    }
    assert judged(records[:1], FINDS)["corrected"][0] == "held"
    assert judged(records[1:2], FINDS)["corrected"][0] == "did not hold"
    assert judged(records[2:], FINDS)["corrected"] == (
        "not tested",
        "no finished run; 1 other cut off.",
    )


def test_whether_gat_fits_the_training_graphs_is_read_from_its_train_accuracy():
    records = [*runs("gat", [0.3, 0.4], 8, train=0.9996), record()]
    assert judged(records, FITS)["corrected"][0] == "held"
    (sentence,) = fits(findings(records).rows)
    assert "GAT (8 heads) 100% in 2 of 2 finished runs at k = 10" in sentence
    assert any(sentence in part.sentences for part in findings(records).headline)
    last = {"round": 30, "train": 0.9996}  # the best round on the validation graphs was earlier
    old = record("gat", 8, test=0.3, train=0.8, history=[last], ended="patience")
    assert judged([old, record()], FITS)["corrected"][0] == "held"


def test_the_train_accuracy_is_that_after_the_last_round_not_the_mean_during_it():
    during = [{"round": 1, "train": 0.69}]
    one = record("gat", 8, history=during)  # ended after a perfect round: its best is its last
    assert judged([one, record()], FITS)["corrected"][0] == "held"
    metrics = {"test_accuracy": 0.3, "train_accuracy": 0.8, "last_train_accuracy": 0.9996}
    one = record("gat", 8, metrics=metrics, history=during, ended="patience")
    assert judged([one, record()], FITS)["corrected"][0] == "held"


def test_the_trend_is_compared_under_each_changed_setting_by_itself():
    norm, both = ["k=4", "norm=layer"], ["k=4", "norm=layer", "lr=0.01"]
    records = at("gatv2", {4: HIGH}) + at("gat", {4: LOW}) + runs("gat", LOW, 8, sets=["k=4"])
    assert trend_table(findings(records)) is None  # nothing is changed
    records += runs("gatv2", HIGH, sets=norm) + runs("gat", LOW, sets=norm)
    records += runs("gatv2", LOW, sets=["k=4", "lr=0.01"])
    records += runs("gat", HIGH, 8, sets=["k=4", "lr=0.01"])
    records += runs("gatv2", LOW, sets=both) + runs("gat", HIGH, sets=both)  # not one by itself
    lines = [line.cells for line in trend_table(findings(records)).lines]
    assert lines == [
        ("nothing", "99.0", "21.0 (1 head)", "4", "3", "1 of 1", "", "holds"),
        ("nothing", "99.0", "21.0 (8 heads)", "4", "3", "1 of 1", "", "holds"),
        ("learning rate 0.01", "21.0", "99.0 (8 heads)", "4", "3", "0 of 1", "", "does not hold"),
        ("normalisation layer", "99.0", "21.0 (1 head)", "4", "3", "1 of 1", "", "holds"),
    ]
    assert trend(findings(records)) == (1, 2)
    assert judged(records, TREND)["corrected, one setting changed"][0] == "held in part"


def test_the_page_lists_claims_without_runs_and_theorems():
    theorems = [Theorem("Theorem 1", "GAT is static", True), Theorem("T", "no", False)]
    text = claims_page([findings([record()])], theorems)
    assert "- **Held**: Theorem 1 (GAT is static).\n- **Did not hold**: T (no).\n" in text
    assert f"*{TREND}*\n\n- **Not tested**: there are no such runs." in text
    assert "- **Held** (corrected): 100% in 1 of 1 finished run at k = 10." in text
    empty = claims_page([findings([])])
    assert "**Not tested**: dictionary-lookup (Section 4.1" in empty


def test_a_benchmark_without_claims_of_its_own_is_judged_by_gatv2_against_gat():
    plain = replace(BENCHMARK, extras=no_extras, claim="GATv2 wins.")
    records = at("gatv2", {4: HIGH}) + at("gat", {4: LOW})
    text = claims_page([findings(records, plain)])
    assert "*GATv2 wins.*\n\n- **Held** (corrected): GATv2 99.0 ± 1.0, GAT (1 head)" in text


def test_a_file_that_is_not_of_theorems_is_refused(tmp_path):
    path = tmp_path / "theorems.json"
    path.write_text('[{"name": "x"}]')
    with pytest.raises(ValueError, match=r"theorems.json must be a file of `dynagat theory --out`"):
        read_theorems(path)


def test_the_verdicts_of_certificates_are_written_without_their_numbers(tmp_path):
    every = [Certificate("A", "b", True, ("x = 1.5",)), *complexity.certificates(timed=False)]
    write_theorems(every, tmp_path)
    assert read_theorems(tmp_path / "theorems.json") == [
        Theorem("A", "b", True),
        Theorem("Parameters", "as the paper counts them", True),
    ]
    assert (tmp_path / "counterexample.svg").read_text().startswith("<svg ")


# Drawings


def test_the_attention_that_the_paper_prints_is_beside_ours():
    ours = [
        record("gat", exhibits=attention([favouring(lambda _: 3, 10, 0.3)])),
        record("gatv2", exhibits=attention([favouring(lambda i: i, 10, 0.9)])),
    ]
    table = attention_table(findings(ours))
    assert [line.cells[1:4] for line in table.lines] == [
        ("ours", "1", "1 of 10"),
        ("the paper's", "1", "1 of 10"),
        ("ours", "10", "10 of 10"),
        ("the paper's", "10", "10 of 10"),
    ]
    assert attention_table(findings([])) is None
    assert [sum(row) for row in FIGURE_1["gatv2"]] == pytest.approx([100] * 10, abs=3)
    assert [sum(row) for row in FIGURE_1["gat"]] == pytest.approx([100] * 10, abs=3)
    svg = figure_1_paper()
    assert svg.count(">.96<") == 1
    assert svg.count(">.41<") == 1


def test_figure_2_shows_every_node_and_every_answer():
    svg = figure_2()
    texts = [f"{name}, ?" for name in "ABCD"] + ["A, 1", "B, 2", "C, 4", "D, 3", "→ 4", "→ 3"]
    assert all(f">{text}<" in svg for text in texts)
    assert svg == figure_2()


def test_the_counterexample_is_drawn_the_same_each_time():
    assert counterexample() == counterexample()
