"""dynagat plan: formulas that can be checked by hand, and clear errors."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from dynagat.benchmarks import BENCHMARKS, OGBN_PRODUCTS
from dynagat.cli import app
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes
from dynagat.planning import Hosts, Rates, find_sizes, make_plan, measure_rates, rates, read_rates
from dynagat.planning.steps import expected
from dynagat.prediction.nodes import NodeTask
from tests.node_graphs import tiny

FAST = {"gat": 8e8, "gatv2": 6e8, "dpgat": 5e8}
RATES = Rates(
    sampled=3e7, gathered=4e9, cold=1e4, flops=1.5e11, attention=FAST, tables=FAST, elements=5e8,
    step=1e-3, threads=2, memory=1e12,
)  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def rates_file(tmp_path):
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(RATES.to_dict()))
    return path


def test_papers100m_has_its_published_sizes():
    plan = make_plan("ogbn-papers100M", RATES)
    assert plan.features == 111_059_956 * 128 * 4
    assert plan.store == plan.features + 8 * 1_615_685_872 + 8 * 111_059_956
    assert plan.rows == 4 * 2 * 1_615_685_872 + 8 * 111_059_956
    assert plan.step.steps == -(-1_207_179 // 256)


def test_the_parts_of_a_step_follow_the_formulas():
    plan = make_plan("ogbn-products", RATES)
    first, last = plan.step.layers[0], plan.step.layers[-1]
    assert last.queries == 196_615 / 769
    assert last.edges == 11 * last.queries  # ten neighbours and the self-loop
    edges = sum(layer.edges for layer in plan.step.layers)
    assert plan.seconds["sampling"] == pytest.approx(edges / RATES.sampled)
    assert plan.seconds["gathering"] == pytest.approx(first.keys * 400 / RATES.gathered)
    rows = [layer.edges + layer.keys + layer.queries for layer in plan.step.layers]
    attended = 128 * (rows[0] + rows[1]) + 47 * rows[2]
    assert plan.seconds["attention"] == pytest.approx(attended / FAST["gatv2"])
    # Shared weights are applied to keys and to queries; the skip, to queries.
    products = 4 * (first.keys + 2 * first.queries) * 100 * 128
    for layer, out in zip(plan.step.layers[1:], (128, 47), strict=True):
        products += 6 * (layer.keys + 2 * layer.queries) * 128 * out
    assert plan.seconds["products"] == pytest.approx(products / RATES.flops)
    assert plan.seconds["reading"] == plan.seconds["network"] == 0
    assert plan.step_seconds == pytest.approx(sum(plan.seconds.values()))
    assert plan.epoch_seconds == pytest.approx(769 * plan.step_seconds)


def test_hosts_share_the_steps_and_exchange_gradients():
    one, four = (make_plan("ogbn-products", RATES, Hosts(count)) for count in (1, 4))
    assert four.steps == -(-one.steps // 4)
    assert one.gradients == one.remote == four.remote == 0
    assert four.gradients == 2 * 3 / 4 * 4 * four.parameters
    network = OGBN_PRODUCTS.network.build(problem_of_products(), "gatv2")
    assert four.parameters == sum(each.numel() for each in network.parameters())
    spread = make_plan("ogbn-products", RATES, Hosts(4, partitioned=True))
    assert spread.remote == pytest.approx(3 / 4 * spread.step.layers[0].keys * 400)
    assert spread.mapped == four.mapped - 3 / 4 * four.features
    assert "Each host has a copy of all features" in " ".join(four.assumptions)
    assert "no server for that" in " ".join(spread.assumptions)


def problem_of_products():
    from dynagat.planning.steps import problem_like

    return problem_like(find_sizes("ogbn-products"), 100)


def test_what_has_no_room_in_memory_is_read_from_disk():
    roomy, tight = (make_plan("ogbn-products", RATES, Hosts(1, size)) for size in (1e12, 1.2e9))
    assert roomy.seconds["reading"] == 0
    missing = 1 - (1.2e9 - tight.memory) / tight.mapped
    rows = tight.step.layers[0].keys + sum(layer.queries for layer in tight.step.layers)
    assert tight.seconds["reading"] == pytest.approx(min(missing, 1) * rows / RATES.cold)
    assert tight.step_seconds == tight.seconds["reading"]  # the network computes meanwhile


def test_batches_of_a_stored_graph_are_counted():
    tiny("mine").save()
    plan = make_plan("mine", RATES)
    assert "batches of the stored graph" in " ".join(plan.assumptions)
    assert plan.step.layers[-1].queries == 30  # all training nodes
    assert plan.step.layers[0].keys <= 90
    assert plan.sizes.features == 6


def test_expected_batches_are_close_to_those_of_an_even_graph():
    draw = torch.Generator().manual_seed(0)
    key, query = torch.randint(2_000, (2, 60_000), generator=draw, dtype=torch.int32).numpy()
    own = tiny("even", nodes=2_000)
    GraphData("even", {NODE: Nodes(2_000, own.nodes[NODE].arrays)}, {EDGE: Edges(key, query)},
              own.split, own.about).save()  # fmt: skip
    counted = make_plan("even", RATES).step
    assert "batches of the stored graph" in counted.how
    task = OGBN_PRODUCTS.task
    assert isinstance(task, NodeTask)
    guess = expected(find_sizes("even"), task, 256, 3, self_loops=True)
    for one, other in zip(counted.layers, guess.layers, strict=True):
        assert one.keys == pytest.approx(other.keys, rel=0.1)
        assert one.edges == pytest.approx(other.edges, rel=0.1)


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-mag", "ogbn-proteins", "pubmed", "cora",
                                  "amazon-photo", "minesweeper", "qm9", "ogbl-ddi"])  # fmt: skip
def test_every_data_set_of_the_catalogue_has_a_plan(name):
    plan = make_plan(name, RATES, Hosts(2), "gat")
    assert 0 < plan.epoch_seconds < 1e6
    is_own = name in BENCHMARKS and isinstance(BENCHMARKS[name].task, NodeTask)
    assert plan.benchmark == (name if is_own else "ogbn-products")
    if name in ("pubmed", "cora"):  # trained on the whole graph
        assert plan.seconds["sampling"] == plan.gradients == 0


def test_rates_are_measured_and_written_and_read(monkeypatch, tmp_path):
    for constant, value in (("SECONDS", 0.01), ("NODES", 4_000), ("COLD_BYTES", 1 << 23)):
        monkeypatch.setattr(rates, constant, value)
    told = []
    measured = measure_rates(told.append)
    assert "sampling" in told
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(make_plan("ogbn-products", measured).to_dict()))
    assert read_rates(path) == measured


def invoke(*words):
    return CliRunner().invoke(app, ["plan", *words])


def test_the_command_prints_the_plan_and_each_assumption_on_a_line(rates_file):
    done = invoke("ogbn-papers100M", "--hosts", "4", "--rates", str(rates_file))
    assert done.exit_code == 0, done.stderr
    assert "111,059,956 nodes, 3,231,371,744 edges" in done.stdout
    plan = make_plan("ogbn-papers100M", RATES, Hosts(4))
    for line in plan.assumptions:
        assert f"  - {line}\n" in done.stdout
    done = invoke("ogbn-papers100M", "--json", "--rates", str(rates_file))
    assert json.loads(done.stdout)["steps"] == plan.step.steps


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["atlantis"], "DATASET must be one of pubmed, cora"),
        (["pubmed", "--hosts", "0"], "hosts must be 1 or more, but is 0"),
        (["pubmed", "--gigabits", "0"], "gigabits must be above 0, but is 0"),
        (["pubmed", "--memory", "-1"], "memory must be above 0, but is -1 GB"),
        (["pubmed", "--mechanism", "gcn"], "mechanism must be one of gat, gatv2, dpgat"),
        (["pubmed", "--rates", "missing.json"], "missing.json: No such file"),
    ],
)
def test_bad_input_is_one_sentence(words, message, rates_file):
    given = words if "--rates" in words else [*words, "--rates", str(rates_file)]
    done = invoke(*given)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_mechanism_without_a_plan_is_refused_before_rates_are_measured(monkeypatch):
    calls = []
    monkeypatch.setattr("dynagat.planning.measure_rates", calls.append)
    done = invoke("pubmed", "--mechanism", "gcn")
    assert (done.exit_code, calls) == (2, [])
    assert done.stderr.startswith("dynagat: mechanism must be one of gat, gatv2, dpgat, but is")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nonsense", json.dumps(RATES.to_dict() | {"sampled": -1}),
     json.dumps(RATES.to_dict() | {"kind": "x"}), json.dumps(RATES.to_dict() | {"flops": "much"}),
     json.dumps(replace(RATES, attention={"gat": 1.0}).to_dict()), '{"rates": 3}'],
)  # fmt: skip
def test_a_file_of_rates_that_is_not_ours_is_refused(text, tmp_path):
    path = tmp_path / "rates.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="--rates must be a file that"):
        read_rates(path)
