"""A comparison trains mechanisms, tests their differences, says which to use, and saves a model."""

import dataclasses
import json
import math
import sqlite3
import statistics
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dynagat
from dynagat.benchmarks.own_graph import OWN_GRAPH, NodeNetwork
from dynagat.comparison import Predictions, compare, load_model, write_pages
from dynagat.comparison.answer import answer
from dynagat.comparison.baselines import Baseline
from dynagat.comparison.plan import as_settings, make_plan
from dynagat.comparison.results import difference, difference_table, differences, results_of
from dynagat.data.arrays import FolderError
from dynagat.data.minesweeper import minesweeper
from dynagat.data.store import EDGE, SPLITS, Edges, GraphData, Nodes
from dynagat.data.tables import read_tables
from dynagat.experiment import Record, Store
from dynagat.experiment.record import key_of
from dynagat.experiment.settings import with_values
from dynagat.experiment.store import StoreError
from dynagat.metrics import ACCURACY, MEAN_ABSOLUTE_ERROR, ROC_AUC
from dynagat.prediction.nodes import NodePrediction, NodeTask, infer_nodes, node_problem
from dynagat.significance import detectable
from dynagat.training import Schedule

QUICK = ["max_rounds=4", "dim=8", "heads=2", "layers=2"]
BETTER, LEVEL = [0.95, 0.96, 0.97], [0.80, 0.79, 0.81]
NO_NEED = "These runs show no need for dynamic attention"
SCORES = {"classification": "roc_auc", "multilabel": "roc_auc", "regression": "r_squared"}


def own_graph(kind="classification", num_nodes=90, seed=0, unknown=6):
    """Two communities, with features that hint at them; some targets are unknown."""
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
        "small",
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
    heads = [{"weighted_agreement": {}, "attends": {"word": focus}, "ranking": {"word": ranking}}
             for focus, ranking in (each.split(", ") for each in verdicts)]  # fmt: skip
    layers = [{"heads": heads}]
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
    return answer(results_of([each for group in groups for each in group], ACCURACY))


def small_network(mechanism):
    """For 5 features and 2 classes."""
    problem = SimpleNamespace(x=torch.empty(0, 5), out_dim=2)
    return NodeNetwork(dim=8, heads=2, layers=2).build(problem, mechanism)


@pytest.mark.parametrize("kind", SCORES)
def test_every_kind_of_target_is_learnt_and_predicted(kind, tmp_path):
    data = own_graph(kind)
    settings = ["max_rounds=30", "dim=8", "heads=2", "layers=2"]
    comparison = compare(data, seeds=[0, 1], settings=settings, folder=tmp_path / "out")
    assert {each.mechanism for each in comparison.results} == set(OWN_GRAPH.mechanisms)
    assert all(len(each.runs) == 2 for each in comparison.results)
    best = comparison.results[0].sample("test")
    assert best.mean > {"classification": 0.8, "multilabel": 0.7, "regression": 0.5}[kind]
    json.dumps(comparison.to_dict(), allow_nan=False)
    assert comparison.to_dict()["score"] == comparison.metric.name == SCORES[kind]
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
    comparison = compare(data, mechanisms=["gcn"], seeds=[0], settings=["max_rounds=40"])
    value = comparison.best.predict(data).value
    assert np.abs(value - data.y).mean() < 0.1


def test_no_column_of_predictions_hides_another():
    odd = {"kind": "multilabel", "classes": ["id", "probability of b", "b"]}
    table = Predictions.of(torch.zeros(2, 3), odd, ["u", "v"], 0, 1).to_pandas()
    assert table["id"].tolist() == ["u", "v"]
    assert table.shape == (2, 7)
    odd = {"kind": "classification", "target": "probability of a", "classes": ["a", "b"]}
    table = Predictions.of(torch.eye(2), odd, ["u", "v"], 0, 1).to_pandas()
    assert table["probability of a (predicted)"].tolist() == ["a", "b"]
    assert table["probability of a"][0] > 0.5


def test_a_comparison_repeats_no_run(tmp_path):
    data = own_graph()
    options = {"seeds": [0, 1], "settings": QUICK, "mechanisms": ["gcn", "gat"], "folder": tmp_path}
    first = compare(data, **options)

    def refuse(jobs, store, workers):
        assert {job.key for job in jobs} <= store.keys()

    again = compare(data, run=refuse, **options)
    assert [each.to_json() for each in again.records] == [each.to_json() for each in first.records]


@pytest.mark.parametrize("weights", [b"", b"\0\1\2", None])
def test_altered_records_are_refused(weights, tmp_path):
    options = {"mechanisms": ["gcn"], "seeds": [0], "settings": QUICK, "folder": tmp_path / "out"}
    compare(own_graph(), **options)
    with closing(sqlite3.connect(tmp_path / "out" / "records.sqlite")) as database, database:
        if weights is None:
            database.execute("DROP TRIGGER record_stays")
            database.execute("UPDATE record SET line = '{}'")
        else:
            database.execute("UPDATE weights SET state = ?", (weights,))
    with pytest.raises(StoreError, match=r"records\.sqlite was altered: "):
        compare(own_graph(), **options)


def test_a_comparison_whose_runs_all_diverge_has_an_answer_and_plain_json(tmp_path):
    options = {"mechanisms": ["gcn", "gat"], "seeds": [0, 1], "folder": tmp_path / "out"}
    comparison = compare(own_graph("regression"), settings=[*QUICK, "lr=1e30"], **options)
    assert "nothing to compare" in str(comparison)
    json.dumps(comparison.to_dict(), allow_nan=False)
    model = load_model(tmp_path / "out" / "model")
    assert model.result["test_r_squared"] is None
    model.save(tmp_path / "again")
    write_pages(comparison, own_graph("regression"), tmp_path / "out")


def test_a_folder_holds_one_comparison(tmp_path):
    """Another graph and other settings are refused; more seeds and mechanisms are not."""
    folder = tmp_path / "out"
    options = {"seeds": [0], "settings": QUICK, "mechanisms": ["gat"], "folder": folder}
    compare(own_graph(seed=0), **options)
    before = {path: path.read_bytes() for path in folder.rglob("*.npy")}
    other = own_graph(seed=1)
    for data in (other, other.save(tmp_path / "other")):
        with pytest.raises(ValueError, match=r"out holds a comparison of another graph; name anot"):
            compare(data, **options)
    with pytest.raises(ValueError, match=r"with other settings \(network.dim=\d+ instead of 6\)"):
        compare(own_graph(seed=0), **options | {"settings": ["max_rounds=4", "dim=6", "heads=2"]})
    assert {path: path.read_bytes() for path in folder.rglob("*.npy")} == before
    again = compare(own_graph(seed=0), **options | {"seeds": [0, 1], "mechanisms": ["gat", "gcn"]})
    assert len(again.records) == 4


def test_a_comparison_of_another_version_is_refused(tmp_path):
    options = {"seeds": [0], "settings": QUICK, "mechanisms": ["gcn"], "folder": tmp_path}
    record = compare(own_graph(), **options).records[0]
    with Store(tmp_path / "records.sqlite") as store:
        settings = {**record.settings, "revision": -1}
        key = key_of(record.benchmark, record.mechanism, record.seed, settings)
        store.add(dataclasses.replace(record, key=key, settings=settings))
    with pytest.raises(ValueError, match="of another version of dynagat; name another folder"):
        compare(own_graph(), **options)


def test_a_comparison_without_a_folder_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    comparison = compare(own_graph(), seeds=[0], settings=QUICK, mechanisms=["gat"])
    assert not list(tmp_path.iterdir())
    assert len(comparison.best.predict(own_graph())) == 90


def test_worker_processes_give_nearly_the_same_metrics_as_one_process(tmp_path):
    options = {"seeds": [0, 1], "settings": QUICK, "mechanisms": ["gcn"]}
    data = own_graph().save(tmp_path / "graph")
    alone, together = compare(data, **options), compare(data, workers=2, **options)
    expected = [dict(run.metrics) for run in sorted(alone.records, key=lambda r: r.seed)]
    for run, metrics in zip(sorted(together.records, key=lambda r: r.seed), expected, strict=True):
        assert dict(run.metrics) == pytest.approx(metrics, abs=0.05)


def test_a_loaded_model_is_the_saved_one(tmp_path):
    data = own_graph()
    best = compare(data, seeds=[0], settings=QUICK, folder=tmp_path).best
    again = dynagat.load_model(tmp_path / "model")
    torch.testing.assert_close(again.outputs(data), best.outputs(data), rtol=0, atol=0)
    assert again.result == best.result
    assert again.mechanism == best.mechanism


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


def test_a_model_refuses_other_features_and_missing_tables(tmp_path):
    data = own_graph()
    model = compare(data, seeds=[0], settings=QUICK, mechanisms=["gat"]).best
    narrow = dataclasses.replace(data.nodes["node"], arrays={"x": np.zeros((90, 4), np.float32)})
    with pytest.raises(ValueError, match="reads 5 features, but small has 4"):
        model.predict(dataclasses.replace(data, nodes={"node": narrow}))
    with pytest.raises(ValueError, match="takes a graph, or the tables of edges and nodes"):
        model.predict()
    with pytest.raises(ValueError, match="not trained on tables: give predict a graph"):
        model.predict(edges="e.csv", nodes="n.csv")


def test_a_model_that_was_altered_is_refused(tmp_path):
    compare(own_graph(), seeds=[0], settings=QUICK, mechanisms=["gat"], folder=tmp_path)
    file = tmp_path / "model" / "arrays.json"
    text = file.read_text()
    file.write_text(text.replace('"mechanism": "gat"', '"mechanism": "gcn"'))
    with pytest.raises(FolderError, match="was altered"):
        load_model(tmp_path / "model")
    with pytest.raises(FolderError, match="must be a model folder, but is a graph folder"):
        load_model(tmp_path / "graph")


def test_nodes_without_features_get_a_one_hot_encoding_of_their_degree():
    data = own_graph()
    bare = Nodes(90, {"y": data.y})
    data = dataclasses.replace(data, nodes={"node": bare})
    problem = node_problem(data)
    assert torch.equal(problem.x.sum(1), torch.ones(90))
    degree = problem.graph.rowptr.diff()
    assert torch.equal(problem.x.argmax(1), degree.double().log2().long())
    assert (
        len(compare(data, seeds=[0], settings=QUICK, mechanisms=["gat"]).best.predict(data)) == 90
    )


@pytest.mark.parametrize("mechanism", OWN_GRAPH.mechanisms)
def test_inference_layer_by_layer_equals_the_whole_network(mechanism):
    problem = node_problem(own_graph())
    network = small_network(mechanism).eval()
    with torch.no_grad():
        whole = network(problem.x, problem.graph)
    parts = infer_nodes(network, problem.x, problem.graph, batch_size=17)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)


def test_training_on_samples_learns_too():
    problem = node_problem(own_graph(num_nodes=300))
    prediction = NodeTask(neighbours=(5, 5)).prepare(problem, Schedule(batch_size=32))
    assert isinstance(prediction, NodePrediction)
    torch.manual_seed(0)
    network = small_network("gatv2")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        network.train()
        for batch in prediction.batches(generator):
            loss, _ = prediction.loss(network, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert prediction.score(network, "test") > 0.8


def test_samples_of_all_neighbours_give_the_loss_of_the_whole_graph():
    problem = node_problem(own_graph())
    for mechanism in OWN_GRAPH.mechanisms:
        network = small_network(mechanism).eval()
        whole, _ = NodeTask().prepare(problem, Schedule()).loss(network, None)
        sampled = NodeTask(neighbours=(-1, -1)).prepare(problem, Schedule(batch_size=1000))
        (batch,) = sampled.batches(torch.Generator().manual_seed(0))
        torch.testing.assert_close(sampled.loss(network, batch)[0], whole, rtol=1e-4, atol=1e-5)


# The plan


def test_large_graphs_are_sampled_and_small_ones_are_not(tmp_path, monkeypatch):
    data = own_graph().save(tmp_path / "graph")
    whole = make_plan(data)
    assert whole.benchmark.task.neighbours == ()
    assert any("whole graph" in reason for reason in whole.reasons)
    monkeypatch.setattr("dynagat.comparison.plan.memory", lambda: 1000)
    small = make_plan(data)
    assert small.benchmark.task.neighbours == (10, 10)
    assert any("Trained on 10, 10 sampled neighbours" in reason for reason in small.reasons)
    deep = make_plan(data, settings=["layers=3"])
    assert deep.benchmark.task.neighbours == (10, 10, 10)
    shallow = make_plan(data, settings=["layers=1"])
    assert shallow.reasons[0].startswith("1 layer of")


def test_settings_override_the_plan(tmp_path):
    data = own_graph().save(tmp_path / "graph")
    plan = make_plan(data, settings=["dim=24", "heads=3", "lr=0.5"])
    assert plan.benchmark.network.dim == 24
    assert {job.benchmark.network.heads for job in plan.jobs()} == {1, 3}  # GCN has one
    assert plan.benchmark.schedule.lr == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanisms": ["mlp"]}, "mechanism must be one of gcn, gat, gatv2, dpgat, but is 'mlp'"),
        ({"seeds": []}, "seeds must hold at least one number"),
        ({"settings": ["dim=8,16"]}, "has one value for each setting"),
        ({"settings": ["wide=8"]}, "there is no setting 'wide'"),
        ({"settings": ["heads=5"]}, "heads must divide dim"),
        ({"settings": ["graph=other"]}, "uses the graph it is given"),
        ({"settings": ["neighbours=5"]}, "neighbours must hold a number for each of 5 layers"),
    ],
)
def test_a_bad_plan_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make_plan(own_graph().save(tmp_path / "graph"), **options)


def test_a_graph_without_a_target_or_a_whole_split_is_refused(tmp_path):
    data = own_graph()
    with pytest.raises(ValueError, match="must have a target for its nodes, but has None"):
        node_problem(dataclasses.replace(data, about={}))
    with pytest.raises(ValueError, match="no nodes for test in its split"):
        node_problem(dataclasses.replace(data, split={**data.split, "test": np.empty(0, np.int64)}))
    flat = Nodes(90, {"x": data.x, "y": np.full(90, 7, np.float32)})
    about = {"task": {"kind": "regression", "node_type": "node"}}
    with pytest.raises(ValueError, match=r"is 7\.0 for all training nodes"):
        node_problem(dataclasses.replace(data, nodes={"node": flat}, about=about))


def test_a_run_refuses_a_graph_that_has_changed(tmp_path):
    data = own_graph().save(tmp_path / "graph")
    job = make_plan(data, mechanisms=["gcn"], seeds=[0], settings=QUICK).jobs()[0]
    own_graph(seed=5).save(tmp_path / "graph", replace=True)
    with pytest.raises(ValueError, match="has changed since it was compared on"):
        job.run(lambda _: None)


def test_the_benchmark_says_that_it_needs_a_graph():
    assert "--set graph=NAME" in OWN_GRAPH.data.missing()
    with pytest.raises(ValueError, match="name a graph: --set graph=NAME"):
        OWN_GRAPH.data.load(0)
    named = with_values(OWN_GRAPH.settings, {"data.graph": "x"})
    assert named.data.missing() is None


def test_the_metric_suits_the_classes(tmp_path):
    """Two classes: ROC-AUC. More than half of the nodes in one of three: macro F1."""
    data = own_graph()

    def planned(y, classes, **options):
        about = {"task": {**data.task, "classes": classes}}
        nodes = {"node": Nodes(90, {"x": data.x, "y": y})}
        changed = dataclasses.replace(data, nodes=nodes, about=about)
        return make_plan(changed.save(tmp_path / "graph", replace=True), **options)

    three, most = np.arange(90) % 3, np.minimum(np.arange(90) % 6, 2)
    plans = [planned(data.y, ["a", "b"]), planned(three, list("abc")), planned(most, list("abc"))]
    assert [plan.benchmark.task.metric for plan in plans] == ["roc_auc", "accuracy", "macro_f1"]
    assert any("Scored by ROC-AUC, because there are two classes." in each
               for each in plans[0].reasons)  # fmt: skip
    own = planned(data.y, ["a", "b"], settings=as_settings("Log loss", "balanced"))
    assert own.benchmark.task.metric == "log_loss"
    assert own.benchmark.schedule.stop_at == 0
    assert planned(data.y, ["a", "b"], settings=["stop_at=0.5"]).benchmark.schedule.stop_at == 0.5
    assert "Every class counts alike in the loss." in own.reasons
    with pytest.raises(ValueError, match=r"metric must be one of accuracy, .*, but is 'mae'"):
        planned(data.y, ["a", "b"], settings=as_settings("mae", None))


def test_balanced_weights_make_classes_count_alike_in_the_loss():
    """The loss does not change if a class has its nodes twice."""
    problem = node_problem(own_graph())
    train = problem.split["train"]
    twice = torch.cat([train, train[problem.y[train] == 1]])
    losses, plain = [], []
    for nodes in (train, twice):
        some = dataclasses.replace(problem, split={**problem.split, "train": nodes})
        out = torch.linspace(-1, 1, 180).reshape(90, 2)[nodes]
        for weights, values in (("balanced", losses), ("none", plain)):
            prediction = NodeTask(class_weights=weights).prepare(some, Schedule())
            values.append(float(prediction.mean_loss(out, prediction.target(nodes))))
    assert losses[0] == pytest.approx(losses[1])
    assert plain[0] != pytest.approx(plain[1])
    with pytest.raises(ValueError, match="class_weights=balanced needs a target with classes"):
        NodeTask(class_weights="balanced").prepare(
            node_problem(own_graph("regression")), Schedule()
        )


def test_a_network_stopped_too_early_is_no_result_and_the_default_learns():
    """Classes of 80:20 that depend on neighbours: the defaults reach what five plain layers do
    not, even on a small grid."""
    data = minesweeper(40)
    quick = ["max_rounds=25", "dim=32"]
    options = {"mechanisms": ["gatv2"], "seeds": [0]}
    learnt = compare(data, settings=quick, **options).results[0]
    assert learnt.sample("test").mean > 0.8
    plain = ["projection=false", "residual=false", "feed_forward=0", "max_rounds=3"]
    dead = compare(data, settings=[*quick[1:], *plain], metric="accuracy", **options)
    assert dead.sentences[0].startswith("No run learned anything")


# The answer


def test_a_clear_winner_is_named_with_its_test():
    sentences = words(runs("gatv2", [0.91, 0.92, 0.93]), runs("gat", [0.80, 0.82, 0.83]))
    assert sentences[0].startswith(
        "Use GATv2: it is the best on the validation nodes, "
        "with accuracy 92.0 ± 1.0 % on the test nodes (3 seeds)"
    )
    expected = "On the test nodes it is better than GAT (by 10.3 points, paired p = 0.001)."
    assert sentences[1] == expected


def test_of_mechanisms_that_do_not_differ_the_faster_is_named():
    level = [0.90, 0.91, 0.92, 0.93]
    sentences = words(runs("gatv2", level, seconds=10), runs("gcn", level[::-1], seconds=2))
    assert any(
        each.startswith("It does not differ significantly from GCN (the same mean")
        for each in sentences
    )
    assert any("5.0 times faster" in each for each in sentences)


def test_a_difference_that_is_not_significant_says_on_which_side_it_is():
    ours = [record("gat", seed, 0.95, test) for seed, test in enumerate([0.70, 0.80])]
    theirs = [record("gcn", seed, 0.90, test) for seed, test in enumerate([0.75, 0.77])]
    close = [record("gatv2", seed, 0.80, test) for seed, test in enumerate([0.6997, 0.8])]
    sentences = " ".join(words(ours, theirs, close))
    assert "GCN (1.0 points above it, paired p" in sentences
    assert "GATv2 (less than 0.1 points below it, paired p" in sentences


def test_the_same_difference_on_two_seeds_is_not_significant():
    tests = {"gatv2": [0.50, 0.75], "gat": [0.25, 0.50]}  # t would be infinite, p 0
    results = results_of([each for name in tests for each in runs(name, tests[name])], ACCURACY)
    assert difference(*results).p == 0.5
    assert any("does not differ significantly" in each for each in answer(results))
    many = [[0.5 + gain + seed / 20 for seed in range(7)] for gain in (0.1, 0.0)]
    results = results_of(runs("gatv2", many[0]) + runs("gat", many[1]), ACCURACY)
    assert difference(*results).is_significant
    assert difference(results[0], results[0]).p == 1


def test_runs_of_less_than_a_second_are_not_compared_by_time():
    sentences = words(
        runs("gcn", [0.9, 0.8, 0.9], seconds=0.4), runs("gat", [0.9, 0.9, 0.8], seconds=0.1)
    )
    assert not any("faster" in each for each in sentences)


def test_the_answer_says_if_test_and_validation_nodes_disagree():
    ours = [record("gat", seed, 0.95, 0.70 + seed / 100) for seed in range(4)]
    theirs = [record("gcn", seed, 0.90, 0.80 + seed / 50) for seed in range(4)]
    assert any("worse than GCN" in each and "disagree" in each for each in words(ours, theirs))


@pytest.mark.parametrize(
    ("ours", "verdict", "start"),
    [
        (BETTER, "attends, dynamic", "This data needs dynamic attention"),
        (BETTER, "attends, static", "GATv2 is better than GAT"),
        (LEVEL, "attends, mixed", f"{NO_NEED}: GATv2 uses it, but is not significantly better"),
        (LEVEL, "attends, static", f"{NO_NEED}: one ranking of the neighbours suits all nodes"),
        (LEVEL, "uniform, dynamic", f"{NO_NEED}, nor for any"),
    ],
)  # fmt: skip
def test_whether_dynamic_attention_is_needed(ours, verdict, start):
    sentences = words(runs("gatv2", ours, verdicts=[verdict] * 3), runs("gat", [0.80, 0.79, 0.80]))
    assert any(each.startswith(start) for each in sentences), sentences


def test_with_one_seed_there_is_no_test():
    ours, theirs = runs("gatv2", [0.9], seconds=9, verdicts=["attends, static"]), runs("gat", [0.8])
    sentences = words(ours, theirs)
    assert any("no test" in each and "--seeds" in each for each in sentences)
    assert not any("better than" in each or "significantly" in each for each in sentences)


def test_worse_is_called_worse():
    sentences = words(runs("gatv2", LEVEL, verdicts=["attends, static"]), runs("gat", BETTER))
    assert any("GATv2 is worse than GAT (p" in each for each in sentences), sentences


def test_runs_that_used_all_their_epochs_are_not_said_to_improve_still():
    """Their best round can be several rounds before the last one."""
    ours = [record("gat", seed, 0.9, 0.8, ended="budget") for seed in range(3)]
    [caution] = [each for each in words(ours) if "all their epochs" in each]
    assert caution.startswith("3 of 3 runs used all their epochs before early stopping ended them")


def test_runs_that_diverged_are_left_out_and_counted():
    bad = [record("gat", 1, math.nan, math.nan, ended="diverged")]
    sentences = words(runs("gatv2", [0.9, 0.91]), [*runs("gat", [0.8]), *bad])
    assert "1 of 4 runs diverged and are left out of the means." in sentences
    same = {"test_predicted_classes": 1.0}  # the largest of several nan is the first
    lost = [record("gat", 0, math.nan, math.nan, ended="diverged")]
    lost = words([dataclasses.replace(each, metrics=each.metrics | same) for each in lost])
    assert len(lost) == 1
    assert lost[0].startswith("All runs diverged, so there is nothing to compare")


def test_p_values_are_corrected_for_the_number_of_tests():
    results = results_of(
        runs("gatv2", [0.9, 0.92, 0.91])
        + runs("gat", [0.85, 0.88, 0.84])
        + runs("gcn", [0.84, 0.86, 0.87]),
        ACCURACY,
    )
    raw = [difference(results[0], other).p for other in results[1:]]
    adjusted = [each.p for each in differences(results[0], results[1:])]
    assert min(adjusted) == pytest.approx(2 * min(raw))
    assert max(adjusted) == pytest.approx(max(*raw, 2 * min(raw)))
    table = difference_table(results)
    assert [line.cells[0] for line in table.lines] == ["GATv2 − GAT", "GATv2 − GCN"]


def test_of_errors_the_lowest_is_the_best():
    errors = {"gat": [0.30, 0.31, 0.32], "gatv2": [0.11, 0.12, 0.10], "gcn": [0.50, 0.52, 0.51]}
    name = MEAN_ABSOLUTE_ERROR.name
    records = [
        dataclasses.replace(run, metrics={f"{p}_{name}": run.metrics["test_accuracy"]
                                          for p in ("train", "valid", "test")})
        for mechanism, values in errors.items() for run in runs(mechanism, values)
    ]  # fmt: skip
    results = results_of(records, MEAN_ABSOLUTE_ERROR)
    assert [each.mechanism for each in results] == ["gatv2", "gat", "gcn"]
    assert results[0].best_run.seed == 2
    sentences = answer(results)
    assert sentences[0].startswith("Use GATv2: ")
    assert "mean absolute error 0.11" in sentences[0]
    assert sentences[1].startswith("On the test nodes it is better than GAT (by 0.2")
    assert "GCN" in sentences[1]


def without_edges(value, seeds=3):
    return Baseline("MLP", "features", ACCURACY,
                    {part: dict.fromkeys(range(seeds), value) for part in SPLITS})  # fmt: skip


@pytest.mark.parametrize(
    ("value", "start"),
    [
        (0.60, "The graph helps: on the test nodes, GATv2 reaches accuracy 80.0 ± 1.0 %, and an "
               "MLP on the features 60.0 % (p < 0.001)"),
        (0.795, "These runs do not show that the graph helps"),
        (0.90, "The graph does not help"),
    ],
)  # fmt: skip
def test_the_answer_says_first_whether_the_graph_helps(value, start):
    results = results_of(runs("gatv2", LEVEL), ACCURACY)
    sentences = answer(results, [without_edges(value), without_edges(value - 0.1)])
    assert sentences[0].startswith(start)
    assert sentences[1].startswith("Use GATv2")


def test_without_a_significant_difference_the_answer_says_what_would_have_been_found():
    sentences = words(runs("gatv2", LEVEL), runs("gat", [0.80, 0.80, 0.79]))
    least = detectable(statistics.stdev([0.0, -0.01, 0.02]), 3)
    expected = f"3 seeds would probably have shown a difference of {100 * least:.1f} points"
    assert any(expected in each for each in sentences), sentences


def constant(mechanism, scores, **metrics):
    """Runs that predict one class."""
    return [
        dataclasses.replace(run, metrics=run.metrics | {"test_predicted_classes": 1.0, **metrics})
        for run in runs(mechanism, scores)
    ]


def test_a_model_that_predicts_one_class_is_named_and_never_compared():
    """On classes of 80:20, a dead network has an accuracy of 80.0 with every seed."""
    dead, alive = constant("gatv2", [0.8] * 3), runs("gat", [0.75, 0.76, 0.74])
    results = results_of([*dead, *alive], ACCURACY)
    assert [each.mechanism for each in results] == ["gat", "gatv2"]
    assert results[1].sample("test") is None
    sentences = answer(results)
    assert sentences[0].startswith("Use GAT:")
    assert any(each.startswith("GATv2 did not learn in 3 of 3 runs, which predict one class")
               for each in sentences)  # fmt: skip
    assert not any("GATv2" in each for each in sentences[:-1])
    assert "No run learned anything" in answer(results_of(dead, ACCURACY))[0]


def test_one_predicted_class_is_a_result_where_the_metric_sees_the_ranking():
    renamed = [
        dataclasses.replace(run, metrics={name.replace("accuracy", "roc_auc"): value
                                          for name, value in run.metrics.items()})
        for run in constant("gatv2", [0.9, 0.92], test_output_std=0.1)
    ]  # fmt: skip
    sentences = answer(results_of(renamed, ROC_AUC))
    assert sentences[0].startswith("Use GATv2")
    assert any("predicts one class for all test nodes in 2 of 2 runs" in each
               for each in sentences)  # fmt: skip
    flat = [dataclasses.replace(run, metrics=run.metrics | {"test_output_std": 1e-5})
            for run in renamed]  # fmt: skip
    assert results_of(flat, ROC_AUC)[0].sample("valid") is None


def test_a_graph_with_few_labels_gets_a_simpler_network(tmp_path):
    many = own_graph().save(tmp_path / "many")
    assert make_plan(many).benchmark.network.own_path
    few = dataclasses.replace(many, split={**many.split, "train": many.split["train"][:5]})
    plan = make_plan(few.save(tmp_path / "few"))
    assert not plan.benchmark.network.own_path
    assert plan.benchmark.network.feature_dropout == 0.6
    assert any("labels are few" in reason for reason in plan.reasons)
