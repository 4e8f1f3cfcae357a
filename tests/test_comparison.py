"""A comparison trains, tests and says in words what came out; its model can be used elsewhere."""

import dataclasses
import json
import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

import dynagat
from dynagat.benchmarks.nodes import NodePrediction, NodeTask, problem_of, run_in_parts
from dynagat.benchmarks.own_graph import OWN_GRAPH
from dynagat.comparison import Predictions, compare, load_model, write_pages
from dynagat.comparison.answer import answer
from dynagat.comparison.plan import make_plan
from dynagat.comparison.rows import difference, differences, rows_of
from dynagat.data.arrays import FolderError
from dynagat.data.store import EDGE, Edges, GraphData, Nodes
from dynagat.data.tables import read_tables
from dynagat.experiment import Record
from dynagat.experiment.settings import with_values
from dynagat.experiment.store import StoreError
from dynagat.nn.network import make_network
from dynagat.training import Schedule

QUICK = ["max_rounds=4", "dim=8", "heads=2"]
BETTER, LEVEL = [0.95, 0.96, 0.97], [0.80, 0.79, 0.81]
NO_NEED = "This data shows no need of dynamic attention"
KINDS = ("classification", "multilabel", "regression")


def own_graph(kind="classification", num_nodes=90, seed=0, unknown=6):
    """Two communities whose nodes tell a little of where they belong; some targets are unknown."""
    draw = np.random.default_rng(seed)
    side = np.arange(num_nodes) % 2
    key, query = draw.integers(0, num_nodes, (2, num_nodes * 8))
    kept = (side[key] == side[query]) | (draw.random(len(key)) < 0.2)
    x = (draw.normal(size=(num_nodes, 5)) + side[:, None]).astype(np.float32)
    y, task = targets(kind, side, draw)
    y[:unknown] = -1 if kind == "classification" else np.nan
    known = draw.permutation(np.arange(unknown, num_nodes))
    parts = np.split(known, [len(known) // 2, 3 * len(known) // 4])
    return GraphData(
        "made",
        {"node": Nodes(num_nodes, {"x": x, "y": y, "id": np.arange(num_nodes) + 100})},
        {EDGE: Edges(key[kept], query[kept])},
        {name: np.sort(part) for name, part in zip(("train", "valid", "test"), parts, strict=True)},
        {"task": {"kind": kind, "node_type": "node", "target": "side", **task}},
    ).symmetric()


def targets(kind, side, draw):
    if kind == "classification":
        return side.astype(np.int64), {"classes": ["left", "right"]}
    if kind == "multilabel":
        y = np.stack([side, 1 - side, draw.integers(0, 2, len(side))], 1).astype(np.float32)
        return y, {"classes": ["a", "b", "c"]}
    return (1000 + 50 * side + draw.normal(size=len(side))).astype(np.float32), {}


def record(mechanism, seed, valid, test, seconds=1.0, verdicts=(), ended="patience"):
    layers = [{"heads": [{"verdict": each} for each in verdicts]}]
    metrics = {"train_accuracy": 1.0, "valid_accuracy": valid, "test_accuracy": test}
    return Record(
        key="", benchmark="own-graph", mechanism=mechanism, heads=8, seed=seed, fidelity="",
        settings={}, metrics=metrics,
        history=[], ended=ended, converged=True, seconds=seconds, peak_memory_bytes=10**9,
        versions={}, commit="", created="", exhibits={"microscope": {"layers": layers}},
    )  # fmt: skip


def runs(mechanism, scores, **more):
    return [record(mechanism, seed, score, score, **more) for seed, score in enumerate(scores)]


def words(*groups):
    return answer(rows_of([each for group in groups for each in group], "accuracy"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_target_is_learnt_and_predicted(kind, tmp_path):
    data = own_graph(kind)
    found = compare(data, seeds=[0, 1], settings=["max_rounds=40", "dim=8", "heads=2"],
                    folder=tmp_path / "out")  # fmt: skip
    assert {row.mechanism for row in found.rows} == set(OWN_GRAPH.mechanisms)
    assert all(len(row.runs) == 2 for row in found.rows)
    best = found.rows[0].sample("test")
    assert best.mean > {"classification": 0.8, "multilabel": 0.7, "regression": 0.5}[kind]
    json.dumps(found.to_dict(), allow_nan=False)
    table = load_model(tmp_path / "out" / "model").predict(data).to_pandas()
    assert list(table["id"]) == list(range(100, 190))
    if kind == "regression":
        assert 900 < table["side"].min() <= table["side"].max() < 1150  # in the target's own unit
    elif kind == "classification":
        assert set(table["side"]) <= {"left", "right"}
        likely = table[["probability of left", "probability of right"]].to_numpy()
        np.testing.assert_allclose(likely.sum(1), 1)
        assert ((likely[:, 1] > 0.5) == (table["side"] == "right")).all()
    else:
        assert list(table)[1:4] == ["a", "b", "c"]
        assert ((table["probability of a"] > 0.5) == table["a"]).all()


def test_a_target_far_from_0_is_learnt(tmp_path):
    nodes = [f"{n},{n % 7},{1e9 + n % 7 / 7}" for n in range(70)]
    edges = [f"{n},{(n + 7) % 70}" for n in range(70)]
    (tmp_path / "n.csv").write_text("\n".join(["id,x,y", *nodes]))
    (tmp_path / "e.csv").write_text("\n".join(["source,target", *edges]))
    data = read_tables(tmp_path / "e.csv", tmp_path / "n.csv", target="y")
    found = compare(data, mechanisms=["gcn"], seeds=[0], settings=["max_rounds=40"])
    guess = found.best.predict(data).value
    assert np.abs(guess - data.y).mean() < 0.1


def test_no_column_of_predictions_hides_another():
    odd = {"kind": "multilabel", "classes": ["id", "probability of b", "b"]}
    table = Predictions.of(torch.zeros(2, 3), odd, ["u", "v"], 0, 1).to_pandas()
    assert table["id"].tolist() == ["u", "v"]
    assert table.shape == (2, 7)
    odd = {"kind": "classification", "target": "probability of a", "classes": ["a", "b"]}
    table = Predictions.of(torch.eye(2), odd, ["u", "v"], 0, 1).to_pandas()
    assert table["probability of a (predicted)"].tolist() == ["a", "b"]
    assert table["probability of a"][0] > 0.5


def test_a_comparison_goes_on_where_it_was(tmp_path):
    data = own_graph()
    asked = {"seeds": [0, 1], "settings": QUICK, "mechanisms": ["gcn", "gat"], "folder": tmp_path}
    first = compare(data, **asked)

    def refuse(jobs, store, workers):
        assert {job.key for job in jobs} <= store.keys()

    again = compare(data, run=refuse, **asked)
    assert [each.to_json() for each in again.records] == [each.to_json() for each in first.records]


@pytest.mark.parametrize("weights", [b"", b"\0\1\2", None])
def test_altered_records_are_told_in_a_sentence(weights, tmp_path):
    asked = {"mechanisms": ["gcn"], "seeds": [0], "settings": QUICK, "folder": tmp_path / "out"}
    compare(own_graph(), **asked)
    with closing(sqlite3.connect(tmp_path / "out" / "records.sqlite")) as database, database:
        if weights is None:
            database.execute("DROP TRIGGER record_stays")
            database.execute("UPDATE record SET line = '{}'")
        else:
            database.execute("UPDATE weights SET state = ?", (weights,))
    with pytest.raises(StoreError, match=r"records\.sqlite was altered: "):
        compare(own_graph(), **asked)


def test_runs_that_all_diverge_are_answered_and_leave_plain_json(tmp_path):
    asked = {"mechanisms": ["gcn", "gat"], "seeds": [0, 1], "folder": tmp_path / "out"}
    found = compare(own_graph("regression"), settings=[*QUICK, "lr=1e30"], **asked)
    assert "nothing to compare" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)
    model = load_model(tmp_path / "out" / "model")
    assert model.result["test_r_squared"] is None
    model.save(tmp_path / "again")
    write_pages(found, own_graph("regression"), tmp_path / "out")


def test_another_graph_in_the_same_folder_is_compared_anew(tmp_path):
    asked = {"seeds": [0], "settings": QUICK, "mechanisms": ["gcn"], "folder": tmp_path}
    first = compare(own_graph(seed=0), **asked)
    second = compare(own_graph(seed=1), **asked)
    assert first.records[0].key != second.records[0].key


def test_a_comparison_without_a_folder_leaves_none(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = compare(own_graph(), seeds=[0], settings=QUICK, mechanisms=["gat"])
    assert not list(tmp_path.iterdir())
    assert len(found.best.predict(own_graph())) == 90


def test_runs_in_processes_are_those_of_one_process(tmp_path):
    asked = {"seeds": [0, 1], "settings": QUICK, "mechanisms": ["gcn"]}
    data = own_graph().save(tmp_path / "graph")
    alone, together = compare(data, **asked), compare(data, workers=2, **asked)
    close = [dict(run.metrics) for run in sorted(alone.records, key=lambda r: r.seed)]
    for run, expected in zip(sorted(together.records, key=lambda r: r.seed), close, strict=True):
        assert dict(run.metrics) == pytest.approx(expected, abs=0.05)


def test_a_saved_model_is_the_model(tmp_path):
    data = own_graph()
    found = compare(data, seeds=[0], settings=QUICK, folder=tmp_path)
    again = dynagat.load_model(tmp_path / "model")
    torch.testing.assert_close(again.outputs(data), found.best.outputs(data), rtol=0, atol=0)
    assert again.result == found.best.result
    assert again.mechanism == found.best.mechanism


@pytest.mark.parametrize("mechanism", OWN_GRAPH.mechanisms)
def test_a_model_predicts_a_graph_that_has_grown(mechanism, tmp_path):
    """Nodes that are far from the new ones keep their predictions."""
    data = own_graph()
    model = compare(data, seeds=[0], settings=QUICK, mechanisms=[mechanism]).best
    edges = data.sole_edges
    nodes = data.nodes["node"].arrays
    grown = GraphData(
        "grown",
        {"node": Nodes(92, {"x": np.concatenate([nodes["x"], nodes["x"][:2]])})},
        {EDGE: Edges(np.append(edges.key_index, [91, 90]), np.append(edges.query_index, [90, 91]))},
        about=data.about,
    )
    before, after = model.predict(data), model.predict(grown)
    np.testing.assert_allclose(after.probability[:90], before.probability, rtol=1e-5)
    assert len(after) == 92


def test_a_model_refuses_other_features_and_half_a_question(tmp_path):
    data = own_graph()
    model = compare(data, seeds=[0], settings=QUICK, mechanisms=["gat"]).best
    narrow = dataclasses.replace(data.nodes["node"], arrays={"x": np.zeros((90, 4), np.float32)})
    with pytest.raises(ValueError, match="reads 5 features, but made has 4"):
        model.predict(dataclasses.replace(data, nodes={"node": narrow}))
    with pytest.raises(ValueError, match="takes a graph, or the tables of edges and nodes"):
        model.predict()
    with pytest.raises(ValueError, match="not trained on tables: give predict a graph"):
        model.predict(edges="e.csv", nodes="n.csv")


def test_a_model_that_was_altered_is_refused(tmp_path):
    compare(own_graph(), seeds=[0], settings=QUICK, mechanisms=["gat"], folder=tmp_path)
    told = tmp_path / "model" / "arrays.json"
    text = told.read_text()
    told.write_text(text.replace('"mechanism": "gat"', '"mechanism": "gcn"'))
    with pytest.raises(FolderError, match="was altered"):
        load_model(tmp_path / "model")
    with pytest.raises(FolderError, match="must be a model folder, but is a graph folder"):
        load_model(tmp_path / "graph")


def test_nodes_without_features_are_told_apart_by_their_degrees():
    data = own_graph()
    bare = Nodes(90, {"y": data.y})
    data = dataclasses.replace(data, nodes={"node": bare})
    problem = problem_of(data)
    assert torch.equal(problem.x.sum(1), torch.ones(90))
    degree = problem.graph.rowptr.diff()
    assert torch.equal(problem.x.argmax(1), degree.double().log2().long())
    assert (
        len(compare(data, seeds=[0], settings=QUICK, mechanisms=["gat"]).best.predict(data)) == 90
    )


@pytest.mark.parametrize("mechanism", OWN_GRAPH.mechanisms)
def test_layer_by_layer_is_what_the_network_gives(mechanism):
    problem = problem_of(own_graph())
    network = make_network(mechanism, 5, 2, dim=8, heads=2).eval()
    with torch.no_grad():
        whole = network(problem.x, problem.graph)
    parts = run_in_parts(network, problem.x, problem.graph, batch_size=17)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)


def test_training_on_samples_learns_too():
    problem = problem_of(own_graph(num_nodes=300))
    task = NodeTask(neighbours=(5, 5)).on(problem, Schedule(batch_size=32))
    assert isinstance(task, NodePrediction)
    torch.manual_seed(0)
    network = make_network("gatv2", 5, 2, dim=8, heads=2)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        network.train()
        for batch in task.batches(generator):
            loss, _ = task.loss(network, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert task.score(network, "test") > 0.8


def test_samples_of_all_neighbours_give_the_loss_of_the_whole_graph():
    problem = problem_of(own_graph())
    for mechanism in OWN_GRAPH.mechanisms:
        network = make_network(mechanism, 5, 2, dim=8, heads=2).eval()
        whole, _ = NodeTask().on(problem, Schedule()).loss(network, None)
        task = NodeTask(neighbours=(-1, -1)).on(problem, Schedule(batch_size=1000))
        (batch,) = task.batches(torch.Generator().manual_seed(0))
        torch.testing.assert_close(task.loss(network, batch)[0], whole, rtol=1e-4, atol=1e-5)


# The plan


def test_large_graphs_are_sampled_and_small_ones_are_not(tmp_path, monkeypatch):
    data = own_graph().save(tmp_path / "graph")
    whole = make_plan(data)
    assert whole.benchmark.task.neighbours == ()
    assert any("whole graph" in reason for reason in whole.reasons)
    monkeypatch.setattr("dynagat.comparison.plan.memory", lambda: 1000)
    small = make_plan(data)
    assert small.benchmark.task.neighbours == (10, 10)
    assert any("samples of 10, 10 neighbours" in reason for reason in small.reasons)
    deep = make_plan(data, settings=["layers=3"])
    assert deep.benchmark.task.neighbours == (10, 10, 10)
    shallow = make_plan(data, settings=["layers=1"])
    assert shallow.reasons[0].startswith("1 layer of")


def test_settings_have_the_last_word(tmp_path):
    data = own_graph().save(tmp_path / "graph")
    plan = make_plan(data, settings=["dim=24", "heads=3", "lr=0.5"])
    assert plan.benchmark.network.dim == 24
    assert {job.benchmark.network.heads for job in plan.jobs()} == {1, 3}  # GCN has one
    assert plan.benchmark.schedule.lr == 0.5


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"mechanisms": ["mlp"]}, "mechanism must be one of gcn, gat, gatv2, dpgat, but is 'mlp'"),
        ({"seeds": []}, "seeds must hold at least one number"),
        ({"settings": ["dim=8,16"]}, "has one value for each setting"),
        ({"settings": ["wide=8"]}, "there is no setting 'wide'"),
        ({"settings": ["heads=5"]}, "heads must divide dim"),
        ({"settings": ["graph=other"]}, "is of the graph it is given"),
        ({"settings": ["neighbours=5"]}, "neighbours must be a number for each of 2 layers"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(asked, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make_plan(own_graph().save(tmp_path / "graph"), **asked)


def test_a_graph_that_asks_nothing_is_refused(tmp_path):
    data = own_graph()
    with pytest.raises(ValueError, match="must have a target for its nodes, but has None"):
        problem_of(dataclasses.replace(data, about={}))
    with pytest.raises(ValueError, match="no nodes for test in its split"):
        problem_of(dataclasses.replace(data, split={**data.split, "test": np.empty(0, np.int64)}))
    flat = Nodes(90, {"x": data.x, "y": np.full(90, 7, np.float32)})
    about = {"task": {"kind": "regression", "node_type": "node"}}
    with pytest.raises(ValueError, match=r"is 7\.0 for all training nodes"):
        problem_of(dataclasses.replace(data, nodes={"node": flat}, about=about))


def test_a_run_belongs_to_what_is_in_the_folder(tmp_path):
    data = own_graph().save(tmp_path / "graph")
    job = make_plan(data, mechanisms=["gcn"], seeds=[0], settings=QUICK).jobs()[0]
    own_graph(seed=5).save(tmp_path / "graph", replace=True)
    with pytest.raises(ValueError, match="no longer the one that was compared on"):
        job.run(lambda _: None)


def test_the_benchmark_says_that_it_needs_a_graph():
    assert "--set graph=NAME" in OWN_GRAPH.data.missing()
    with pytest.raises(ValueError, match="name one"):
        OWN_GRAPH.data.load(0)
    named = with_values(OWN_GRAPH.settings, {"data.graph": "x"})
    assert named.data.missing() is None


# The words


def test_a_clear_winner_is_named_with_its_test():
    said = words(runs("gatv2", [0.91, 0.92, 0.93]), runs("gat", [0.80, 0.82, 0.83]))
    assert said[0].startswith("Use GATv2: it is the best on the validation nodes, with accuracy "
                              "92.0 ± 1.0 % on the test nodes (3 seeds)")  # fmt: skip
    assert said[1] == "On the test nodes it is better than GAT (by 10.3 points, paired p = 0.001)."


def test_a_draw_is_called_one_and_the_faster_is_named():
    level = [0.90, 0.91, 0.92, 0.93]
    said = words(runs("gatv2", level, seconds=10), runs("gcn", level[::-1], seconds=2))
    assert any(each.startswith("It can't be told apart from GCN (the same mean") for each in said)
    assert any("5.0 times faster" in each for each in said)


def test_what_is_level_says_on_which_side_it_is():
    ours = [record("gat", seed, 0.95, test) for seed, test in enumerate([0.70, 0.80])]
    theirs = [record("gcn", seed, 0.90, test) for seed, test in enumerate([0.75, 0.77])]
    close = [record("gatv2", seed, 0.80, test) for seed, test in enumerate([0.6997, 0.8])]
    said = words(ours, theirs, close)[1]
    assert "GCN (1.0 points above it, paired p" in said
    assert "GATv2 (less than 0.1 points below it, paired p" in said


def test_the_same_difference_on_two_seeds_is_no_proof():
    tests = {"gatv2": [0.50, 0.75], "gat": [0.25, 0.50]}  # t would be infinite, p 0
    rows = rows_of([each for name in tests for each in runs(name, tests[name])], "accuracy")
    assert difference(*rows).p == 0.5
    assert any("can't be told apart" in each for each in answer(rows))
    many = [[0.5 + gain + seed / 20 for seed in range(7)] for gain in (0.1, 0.0)]
    rows = rows_of(runs("gatv2", many[0]) + runs("gat", many[1]), "accuracy")
    assert difference(*rows).is_clear
    assert difference(rows[0], rows[0]).p == 1


def test_moments_are_not_worth_telling_apart():
    said = words(
        runs("gcn", [0.9, 0.8, 0.9], seconds=0.4), runs("gat", [0.9, 0.9, 0.8], seconds=0.1)
    )
    assert not any("faster" in each for each in said)


def test_test_nodes_that_contradict_the_validation_nodes_are_told():
    ours = [record("gat", seed, 0.95, 0.70 + seed / 100) for seed in range(4)]
    theirs = [record("gcn", seed, 0.90, 0.80 + seed / 50) for seed in range(4)]
    assert any("worse than GCN" in each and "do not agree" in each for each in words(ours, theirs))


@pytest.mark.parametrize(
    ("ours", "verdict", "start"),
    [
        (BETTER, "dynamic", "This data needs dynamic attention"),
        (BETTER, "static", "GATv2 is better than GAT"),
        (LEVEL, "dynamic", f"{NO_NEED}: GATv2 makes use of it"),
        (LEVEL, "mostly static", f"{NO_NEED}: one ranking of the neighbours serves all nodes"),
        (LEVEL, "uniform: not attending", f"{NO_NEED}, nor of any"),
    ],
)  # fmt: skip
def test_whether_dynamic_attention_is_needed(ours, verdict, start):
    said = words(runs("gatv2", ours, verdicts=[verdict] * 3), runs("gat", [0.80, 0.79, 0.80]))
    assert any(each.startswith(start) for each in said), said


def test_one_seed_is_no_test():
    ours, theirs = runs("gatv2", [0.9], seconds=9, verdicts=["static"]), runs("gat", [0.8])
    said = words(ours, theirs)
    assert any("no test" in each and "--seeds" in each for each in said)
    assert not any("no better" in each or "told apart" in each for each in said)


def test_worse_is_called_worse():
    said = words(runs("gatv2", LEVEL, verdicts=["static"]), runs("gat", BETTER))
    assert any("GATv2 is worse than GAT (p" in each for each in said), said


def test_runs_that_diverged_are_left_out_and_told():
    bad = [record("gat", 1, math.nan, math.nan, ended="diverged")]
    said = words(runs("gatv2", [0.9, 0.91]), [*runs("gat", [0.8]), *bad])
    assert "1 of 4 runs diverged and are left out of the means." in said
    lost = words([record("gat", 0, math.nan, math.nan, ended="diverged")])
    assert len(lost) == 1
    assert "nothing to compare" in lost[0]


def test_p_values_are_adjusted_for_their_number():
    rows = rows_of(runs("gatv2", [0.9, 0.92, 0.91]) + runs("gat", [0.85, 0.88, 0.84])
                   + runs("gcn", [0.84, 0.86, 0.87]), "accuracy")  # fmt: skip
    raw = [difference(rows[0], other).p for other in rows[1:]]
    adjusted = [each.p for each in differences(rows[0], rows[1:])]
    assert min(adjusted) == pytest.approx(2 * min(raw))
    assert max(adjusted) == pytest.approx(max(*raw, 2 * min(raw)))


def test_few_labels_get_a_plainer_network(tmp_path):
    many = own_graph().save(tmp_path / "many")
    assert make_plan(many).benchmark.network.skip
    few = dataclasses.replace(many, split={**many.split, "train": many.split["train"][:5]})
    plan = make_plan(few.save(tmp_path / "few"))
    assert not plan.benchmark.network.skip
    assert plan.benchmark.network.feature_dropout == 0.6
    assert any("few labels" in reason for reason in plan.reasons)


def test_made_up_data_give_no_result(tmp_path):
    data = own_graph()
    made = dataclasses.replace(data, about={**data.about, "made": True})
    with pytest.raises(ValueError, match="graph made is made up: no mechanism can be judged"):
        compare(made, folder=tmp_path)
    assert not (tmp_path / "records.sqlite").exists()
