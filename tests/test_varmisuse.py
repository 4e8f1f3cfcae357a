"""VarMisuse: network, stream, scores, baselines and the benchmark, on made-up programs."""

import threading
import time
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from bench.synthetic_programs import ProgramRecipe
from typer.testing import CliRunner

from dynagat.benchmarks.varmisuse import VARMISUSE, stream
from dynagat.benchmarks.varmisuse.baselines import baselines, expected_hit
from dynagat.benchmarks.varmisuse.data import ProgramData
from dynagat.benchmarks.varmisuse.network import LabelEmbedding, ProgramStack, SlotReadout
from dynagat.benchmarks.varmisuse.stream import join
from dynagat.benchmarks.varmisuse.task import TESTS, ProgramTask, strict_accuracy
from dynagat.cli import app
from dynagat.data.programs.chunks import read_chunk
from dynagat.data.programs.importing import Task, Yield, write_programs
from dynagat.data.programs.labels import NUM_CODES, decode, encode
from dynagat.data.programs.layout import PARTS, pack
from dynagat.data.programs.records import EDGE_TYPES, NOWHERE, RELATIONS, read_record
from dynagat.data.programs.stored import SEEN, UNSEEN
from dynagat.experiment import Request, as_published, jobs_of, run
from dynagat.report.findings import Findings
from dynagat.significance import Sample, student
from dynagat.training import fit
from tests.pretend_device import DEVICE, pretend_device

SMALL = ProgramRecipe(tokens=12, inner=10, names=8, candidates=3)
SIZES = {"train": 230, "valid": 30, SEEN: 20, UNSEEN: 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A stored set of programs."""
    root = tmp_path_factory.mktemp("programs") / "made"

    def read(part):
        records = SMALL.records(SIZES[part], seed=PARTS.index(part))
        return [Yield("made", "made", tuple(map(pack, records)))]

    about = {"name": "made", "language": "csharp", "source": "a test", "settings": {}}
    write_programs(root, [Task(part, part) for part in PARTS], read, about=about)
    return root


@pytest.fixture(scope="module")
def problem(folder):
    return ProgramData(str(folder)).load(0)


def graphs(count=3):
    return [read_record(record, "csharp") for record in SMALL.records(count)]


# Network


@pytest.mark.parametrize(
    ("mechanism", "count"), [("gat", 1_763_409), ("gatv2", 1_745_745), ("dpgat", 3_423_825)]
)
def test_the_network_has_the_parameters_of_the_released_code(mechanism, count):
    published = as_published(VARMISUSE.settings).network
    assert sum(p.numel() for p in published.build(None, mechanism).parameters()) == count
    ours = VARMISUSE.network.build(None, mechanism)
    assert sum(p.numel() for p in ours.parameters()) == count + 2 * 5 * 16  # D39: { and }


@pytest.mark.parametrize("depth", [68, NUM_CODES])
def test_the_character_cnn_equals_loops(depth):
    labels = ["maxNodes", "{x}", "", "abcdefghijklmnopqrstuvwxyz"]
    codes = torch.tensor([list(encode(label)) for label in labels])
    layer = LabelEmbedding(8, depth).double().requires_grad_(False)
    torch.nn.init.normal_(layer.first.bias)

    def leaky(z):
        return z if z > 0 else 0.2 * z

    for row, found in zip(codes.tolist(), layer.features(codes).tolist(), strict=True):
        hidden = [
            [
                leaky(
                    float(layer.first.bias[f])
                    + sum(
                        float(layer.first.weight[f, row[start + n], n])
                        for n in range(5)
                        if row[start + n] < depth
                    )
                )
                for start in range(15)
            ]
            for f in range(16)
        ]
        pooled = torch.tensor([[max(line[start : start + 5]) for start in range(11)]
                               for line in hidden], dtype=torch.float64)  # fmt: skip
        for out in range(0, 64, 13):
            total = float((layer.second.weight[out] * pooled).sum() + layer.second.bias[out])
            assert found[out] == pytest.approx(leaky(total))


def test_as_published_braces_are_zero_vectors_and_unknown_characters_are_not():
    """D39"""
    codes = torch.tensor([list(encode(text)) for text in ("{", "}", "¿", "a")])
    published = LabelEmbedding(4, 68).features(codes)
    assert torch.equal(published[0], published[1])
    assert not torch.equal(published[0], published[2])
    assert not torch.equal(*LabelEmbedding(4, NUM_CODES).features(codes[:2]))


def test_the_score_of_a_candidate_is_its_formula():
    readout, h = SlotReadout(4), torch.randn(6, 4)
    slot, candidate = torch.tensor([0, 0, 5]), torch.tensor([1, 2, 3])
    w = readout.linear.weight[0]
    for score, s, c in zip(readout(h, None, slot, candidate), slot, candidate, strict=True):
        assert torch.isclose(score, torch.cat([h[c], h[s], (h[c] @ h[s])[None]]) @ w)


def test_baselines_have_the_settings_of_the_released_code():
    jobs = {job.mechanism: job.benchmark for job in jobs_of(VARMISUSE, Request(seeds=(1,)))}
    gcn, gin, gat = (jobs[name] for name in ("gcn", "gin", "gat"))
    assert (gcn.network.layers, gcn.network.dim, gcn.task.max_nodes) == (10, 128, 74_999)
    assert (gcn.schedule.lr, gcn.schedule.lr_graphs, gat.schedule.lr_graphs) == (0.00015, 0, 30)
    for benchmark, denses, norms in ((gcn, 1, 0), (gin, 6, 6), (gat, 1, 0)):
        mechanism = {id(gcn): "gcn", id(gin): "gin", id(gat): "gat"}[id(benchmark)]
        layers = benchmark.network.build(None, mechanism).layers
        after = [part for layer in layers for part in layer.after]
        assert sum(isinstance(part, torch.nn.Linear) for part in after) == denses
        assert sum(isinstance(part, torch.nn.LayerNorm) for part in after) == norms
    assert gat.network.build(None, "gat").every == 0
    assert gin.network.build(None, "gin").every == 2


@pytest.mark.parametrize("mechanism", ["gat", "gatv2", "dpgat", "gcn", "gin"])
def test_layers_that_are_computed_again_give_the_same_gradients(mechanism):
    batch, found = join(graphs()), []
    num_nodes = len(batch.x.label)
    for recompute_from, calls in ((num_nodes, 2), (num_nodes + 1, 1), (None, 1)):
        torch.manual_seed(0)
        network = ProgramStack(dim=16, layers=3).build(None, mechanism).train()
        network.recompute_from = recompute_from
        seen = []
        network.layers[0].register_forward_pre_hook(lambda *_, seen=seen: seen.append(1))
        torch.nn.functional.cross_entropy(batch.run(network), batch.y).backward()
        found.append([p.grad for p in network.parameters()])
        assert len(seen) == calls
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


# Batches


def test_a_batch_has_the_edges_of_its_graphs_in_both_directions_and_self_loops():
    some = graphs()
    batch, start = join(some), 0
    graph = batch.graph
    found = sorted(zip(graph.key_index.tolist(), graph.query_index.tolist(),
                       graph.relation.tolist(), strict=True))  # fmt: skip
    expected, count = [], len(EDGE_TYPES)
    for number, each in enumerate(some):
        for key, query, kind in zip(each.key, each.query, each.kind, strict=True):
            one, other = start + int(key), start + int(query)
            expected += [(one, other, 1 + kind), (other, one, 1 + count + kind)]
        texts = [decode(batch.x.codes[label].numpy()) for label in batch.x.label]
        assert texts[start : start + each.num_nodes] == [decode(each.codes[n]) for n in each.label]
        assert batch.slot[number] == start + each.slot[0]
        assert batch.candidates[number].tolist() == [*(start + each.candidates).tolist(), -1, -1]
        start += each.num_nodes
    assert found == sorted(expected + [(n, n, 0) for n in range(start)])
    assert graph.num_relations == len(RELATIONS)
    assert len(batch.x.codes.unique(dim=0)) == len(batch.x.codes)


def test_graphs_of_a_batch_do_not_depend_on_each_other():
    some = graphs()
    network = ProgramStack(dim=16, layers=2).build(None, "gatv2").eval()
    alone = [join([graph]).run(network) for graph in some]
    torch.testing.assert_close(join(some).run(network), torch.cat(alone))


def order(problem, seed, max_nodes=200):
    """The sizes of all batches, and the codes of their labels, which tell graphs apart."""
    batches = problem.batches("train", max_nodes, seed)
    return [(len(b), b.graph.num_queries, int(b.x.codes.sum()), len(b.graph.key_index))
            for b in batches]  # fmt: skip


def test_batches_are_a_function_of_the_seed_and_stay_below_the_limit(problem, monkeypatch):
    monkeypatch.setattr(stream, "WINDOW", 2)
    first = order(problem, 1)
    assert first == order(problem, 1)
    assert first != order(problem, 2)
    assert sum(count for count, *_ in first) == SIZES["train"]
    assert all(nodes <= 200 for _, nodes, *_ in first)
    assert [count for count, *_ in order(problem, 1, max_nodes=1)] == [1] * SIZES["train"]


def test_an_epoch_has_each_graph_once_in_whatever_order(problem):
    def marks(some):
        return sorted((graph.num_nodes, graph.label.tobytes()) for graph in some)

    expected = marks(g for path in problem.chunks["train"] for g in read_chunk(path, "csharp"))
    assert marks(problem.graphs("train", seed=3)) == marks(problem.graphs("train")) == expected
    shuffled = [graph.num_nodes for graph in problem.graphs("train", seed=3)]
    assert shuffled != [graph.num_nodes for graph in problem.graphs("train")]


class Chunks:
    """Pretends to read chunks of one graph each, and knows which graphs are in memory."""

    def __init__(self, monkeypatch, count):
        monkeypatch.setattr(stream, "WINDOW", 2)
        monkeypatch.setattr(stream, "read_chunk", self.read)
        self.problem = stream.ProgramProblem({"train": list(range(count))}, "csharp")
        self.graphs, self.num_read = weakref.WeakSet(), 0

    def read(self, path, language):
        self.num_read += 1
        graph = replace(graphs(1)[0])
        self.graphs.add(graph)
        return [graph]


def test_a_slow_reader_has_at_most_three_windows_in_memory(monkeypatch):
    chunks, most = Chunks(monkeypatch, 16), 0
    for _ in chunks.problem.graphs("train", seed=0):
        time.sleep(0.01)  # time to read ahead
        most = max(most, len(chunks.graphs))
    assert chunks.num_read == 16
    assert 2 < most <= 3 * 2


def test_a_stream_that_is_closed_reads_no_further(monkeypatch):
    chunks = Chunks(monkeypatch, 100)
    some = chunks.problem.graphs("train")
    next(some)
    some.close()
    assert chunks.num_read <= 3 * 2
    assert not [each for each in threading.enumerate() if each.name.startswith("dynagat")]


def test_epochs_follow_the_generator_so_that_training_resumes(problem):
    prediction = ProgramTask(max_nodes=200).prepare(problem, VARMISUSE.schedule)

    def sizes(generator):
        return [batch.graph.num_queries for batch in prediction.batches(generator)]

    generator = torch.Generator().manual_seed(5)
    first = sizes(generator)
    state = generator.get_state()
    second = sizes(generator)
    assert first != second
    assert sizes(torch.Generator().set_state(state)) == second


# Scores and baselines


def test_ties_are_wrong_unless_as_published():
    """D40"""
    scores = torch.tensor([[1.0, 1.0, -torch.inf], [2.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    target = torch.zeros(3, dtype=torch.int64)
    ours, published = ProgramTask(), as_published(ProgramTask())
    found = [
        each.prepare(None, VARMISUSE.schedule).metric.function(scores, target)
        for each in (ours, published)
    ]
    assert found == pytest.approx([1 / 3, 2 / 3])
    assert strict_accuracy(torch.zeros(4, 5), torch.arange(4)) == 0  # a constant network
    assert strict_accuracy(torch.full((4, 5), torch.nan), torch.arange(4)) == 0


def test_guesses_share_their_hits_among_equals():
    assert expected_hit(np.array([1, 1, 0])) == 0.5
    assert expected_hit(np.array([0, 1, 0])) == 0
    evidence = [
        {"candidates": np.array([1, 2]), "uses": np.array([3, 1]), "distance": np.array([5, 2])},
        {"candidates": np.array([1, 2, 3, 4]), "uses": np.array([0, 0, 1, 0]),
         "distance": np.array([9, NOWHERE, NOWHERE, 10])},
    ]  # fmt: skip
    assert baselines(evidence) == {
        "chance": (1 / 2 + 1 / 4) / 2, "most used name": 1 / 2, "nearest name": 1 / 2,
    }  # fmt: skip


# Benchmark


def test_the_learning_rate_grows_with_the_graphs_of_a_batch(problem):
    """Of Adam's first step, each weight changes by the learning rate."""
    benchmark = replace(VARMISUSE, network=ProgramStack(dim=16, layers=1))
    prediction = ProgramTask().prepare(problem, benchmark.schedule)
    rates = {}
    for lr_graphs in (0, SIZES["train"] // 2):
        torch.manual_seed(0)
        network = benchmark.network.build(problem, "gatv2")
        before = network.readout.linear.weight.detach().clone()
        schedule = replace(benchmark.schedule, lr_graphs=lr_graphs, max_rounds=1, lr=1e-3)
        fit(network, prediction, schedule, torch.Generator().manual_seed(0))
        rates[lr_graphs] = float((network.readout.linear.weight.detach() - before).abs().max())
    assert rates[0] == pytest.approx(1e-3, rel=1e-2)
    assert rates[SIZES["train"] // 2] == pytest.approx(2e-3, rel=1e-2)


def test_the_paper_reports_p_values_that_its_numbers_imply():
    found = {(each.mechanism, each.metric): each for each in VARMISUSE.published}
    for part, p in ((SEEN, 0.048), (UNSEEN, 0.049)):
        gatv2, gat = (found[name, TESTS[part]] for name in ("gatv2", "gat"))
        samples = [Sample(each.mean, each.std, each.n) for each in (gatv2, gat)]
        assert student(*samples) == pytest.approx(p, abs=0.002)


@pytest.mark.parametrize("mechanism", ["gatv2", "gcn", "gin"])
def test_programs_are_learnt_and_scored_on_a_device(problem, mechanism):
    found = []
    for place in ("cpu", str(DEVICE)):
        torch.manual_seed(0)
        network = ProgramStack(dim=16, layers=2).build(None, mechanism)
        with pretend_device():
            prediction = ProgramTask().prepare(problem, VARMISUSE.schedule).to(torch.device(place))
            network.to(place).train()
            batch = next(prediction.batches(torch.Generator().manual_seed(0)))
            assert batch.y.device == torch.device(place)
            prediction.loss(network, batch)[0].backward()
            gradient = next(network.parameters()).grad.cpu()
            found.append((gradient, prediction.evaluate(network, "valid")[1]))
    torch.testing.assert_close(found[1][0], found[0][0], atol=1e-5, rtol=1e-4)
    assert found[1][1] == pytest.approx(found[0][1], abs=1e-5)


def test_smoke_runs_of_all_mechanisms_are_recorded_and_reported(folder, tmp_path):
    command = ["run", "varmisuse", "--smoke", "--set", f"dataset={folder}", "--store",
               str(tmp_path / "runs.sqlite")]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    for text in ("GATv2", "GIN", "Without a network", "nearest name", "unseen projects"):
        assert text in done.output


def test_a_run_can_be_repeated_and_says_what_guesses_reach(folder):
    request = Request(mechanisms=("gatv2",), settings=(f"dataset={folder}",), smoke=True)
    (job,) = jobs_of(VARMISUSE, request)
    one, other = (run(job.benchmark, "gatv2", 1) for _ in range(2))
    assert one.metrics == other.metrics
    assert set(one.metrics) == {"valid_accuracy", "seen_accuracy", "unseen_accuracy"}
    guesses = one.exhibits["baselines"]
    assert guesses[UNSEEN]["chance"] == pytest.approx(1 / 3)
    assert 0 < guesses[SEEN]["nearest name"] < 1
    (table,) = Findings.of([one], VARMISUSE).extras.tables
    assert [line.cells[1] for line in table.lines] == ["chance", "most used name", "nearest name"]
    assert "p = 0.049" in table.legend


def test_missing_data_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    assert "import-programs graph-dataset --name varmisuse" in ProgramData().missing()
    assert "import-python" in ProgramData("mine").missing()
    assert "graph-dataset" not in ProgramData("mine").missing()
    done = CliRunner().invoke(app, ["run", "varmisuse", "--smoke"])
    assert done.exit_code == 2
    assert "there is no set of programs 'varmisuse'" in done.output
