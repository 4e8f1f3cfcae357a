"""Runs, models and analyses on a device: checked on a pretended one, since there is no GPU."""

import io
import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import dynagat
from dynagat import Graph, placement
from dynagat.benchmarks import BENCHMARKS, find
from dynagat.benchmarks.own_links import OWN_LINKS
from dynagat.cli import app
from dynagat.cli.workers import chosen_runner
from dynagat.comparison import LinkModel, compare
from dynagat.data.link_split import codes_of
from dynagat.experiment import Cluster, Request, environment, jobs_of, run, runner, validate
from dynagat.experiment.checkpoint import Checkpoints, read
from dynagat.experiment.settings import with_values
from dynagat.prediction.links import LinkTask
from dynagat.prediction.prediction import Prediction
from dynagat.sampling import NeighborLoader, infer
from tests.node_graphs import tiny
from tests.pretend_device import DEVICE, pretend_device
from tests.toys import candidates, graphs, links, nodes

GPU = torch.device("cuda:1")


@dataclass(frozen=True)
class OneLayer(links.ToyNetwork):
    layers: int = 1


def changed(benchmark, **values):
    rounds = {"schedule.max_rounds": 2} | {name.replace("__", "."): v for name, v in values.items()}
    return benchmark.with_settings(with_values(benchmark.settings, rounds))


def lookup():
    request = Request(("k=4", "num_graphs=64", "max_rounds=1"), ("gatv2",), seeds=(0,))
    return jobs_of(find("dictionary-lookup"), request)[0].benchmark


CASES = {
    "nodes": lambda: changed(nodes.BENCHMARK),
    "sampled nodes": lambda: changed(nodes.BENCHMARK, task__neighbours=(2, 2)),
    "walks": lambda: changed(nodes.BENCHMARK, task__roots=10, task__steps=2),
    "balanced": lambda: changed(nodes.BENCHMARK, task__class_weights="balanced"),
    "graphs": lambda: changed(graphs.BENCHMARK),
    "links": lambda: changed(links.BENCHMARK),
    "sampled links": lambda: changed(
        replace(links.BENCHMARK, network=OneLayer(), task=LinkTask(neighbours=(2,)))
    ),
    "candidates": lambda: changed(candidates.BENCHMARK),
    "lookup": lookup,
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_on_a_device_is_that_on_the_cpu_within_rounding(case):
    microscope = "glance" if case in ("nodes", "candidates") else "none"
    benchmark = replace(CASES[case](), microscope=microscope)
    here = run(benchmark, "gatv2", 0)
    with pretend_device():
        there = run(benchmark, "gatv2", 0, device=str(DEVICE))
    assert there.metrics == pytest.approx(here.metrics, abs=1e-6)
    for one, other in zip(there.history, here.history, strict=True):
        assert one == pytest.approx(other, abs=2e-5, nan_ok=True)
    assert microscope == "none" or there.exhibits["microscope"]["layers"]
    assert torch.load(io.BytesIO(there.weights), weights_only=True).keys()  # without the device


@pytest.mark.parametrize("mechanism", ["gcn", "gin", "sage"])
def test_mechanisms_without_attention_run_on_a_device(mechanism):
    known = replace(changed(nodes.BENCHMARK), mechanisms={mechanism: (1,)}, microscope="none")
    here = validate(known, mechanism, 0)
    with pretend_device():
        there = validate(known, mechanism, 0, device=str(DEVICE))
    losses = [[each.loss for each in outcome.history] for outcome in (there, here)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_a_record_names_its_device_beside_its_key():
    benchmark = replace(changed(nodes.BENCHMARK, schedule__max_rounds=1), microscope="none")
    here = run(benchmark, "gatv2", 0)
    with pretend_device():
        there = run(benchmark, "gatv2", 0, device=str(DEVICE))
    assert there.key == here.key
    assert there.versions == here.versions | {"device": "lazy:0", "backend": "streamed"}
    assert "device" not in here.versions


def test_a_checkpoint_is_continued_on_its_own_device_only(tmp_path):
    checkpoints = Checkpoints(tmp_path, 0)
    benchmark = changed(nodes.BENCHMARK)
    messages = []

    def stop(here):
        if here.round == 2:
            raise KeyboardInterrupt

    with pretend_device() as device:
        checkpoint = checkpoints.of("0", device=device)
        with pytest.raises(KeyboardInterrupt):
            validate(benchmark, "gatv2", 0, stop, checkpoint, str(device))
        message = "was written by device lazy:0, but this is None"
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "0.pt")
        again = checkpoints.of("0", lambda text, seconds: messages.append(text), device)
        continued = validate(benchmark, "gatv2", 0, lambda _: None, again, str(device))
    assert messages == ["continues after round 1"]
    whole = validate(benchmark, "gatv2", 0)
    losses = [[each.loss for each in outcome.history] for outcome in (continued, whole)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_a_task_that_knows_no_devices_is_refused():
    class Own(Prediction):
        batches = evaluate = loss = metric = microscope_input = None

    with pytest.raises(ValueError, match="Own runs on the CPU only, but device is cuda:1"):
        Own().to(GPU)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "device is cuda, but torch .* finds none of that kind here"),
        ("cuda:0", "device is cuda:0, but torch .* finds none of that kind here"),
        ("mps", "device is mps, but torch .* finds none of that kind here"),
        ("cpu:1", "device is cpu:1, but torch .* finds only 1 of that kind here"),
        (
            "gpu",
            "device must be one of auto, cpu, cuda, xpu, mps, or one with a number such as cuda",
        ),
        ("cuda:x", "but is 'cuda:x'"),
        ("meta", "but is 'meta'"),
    ],
)
def test_a_device_that_is_not_here_is_an_error(name, message, monkeypatch):
    monkeypatch.setattr(placement, "count_devices", lambda kind: 0)
    with pytest.raises(ValueError, match=message):
        placement.find_device(name)


def test_auto_is_the_first_gpu_or_the_cpu(monkeypatch):
    monkeypatch.setattr(placement, "count_devices", lambda kind: 0)
    assert placement.find_device("auto") == torch.device("cpu")
    monkeypatch.setattr(placement, "count_devices", {"cuda": 0, "xpu": 0, "mps": 1}.get)
    assert placement.find_device("auto") == torch.device("mps:0")
    with pytest.raises(ValueError, match="finds only 1 of that kind"):
        placement.find_device("mps:1")


def test_the_commands_run_inspect_and_tune_on_a_device(monkeypatch, tmp_path):
    monkeypatch.setitem(BENCHMARKS, "toy-links", links.BENCHMARK)
    place = ["--device", str(DEVICE)]

    def dynagat_(*words):
        result = CliRunner().invoke(app, [*map(str, words), *place])
        assert result.exit_code == 0, result.output
        return result.stdout

    store = tmp_path / "records.sqlite"
    with pretend_device():
        text = dynagat_("run", "toy-links", "--mechanism", "gatv2", "--seeds", 0,
                        "--set", "max_rounds=1", "--store", store, "--json")  # fmt: skip
        assert json.loads(text)["versions"]["device"] == str(DEVICE)
        text = dynagat_("inspect", "toy-links", "--store", store, "--out", tmp_path / "page.html")
        assert "agreement" in text.splitlines()[0]
        study = tmp_path / "tune.sqlite"
        dynagat_(
            "tune",
            "toy-links",
            "--mechanism",
            "gatv2",
            "--smoke",
            "--trials",
            2,
            "--storage",
            study,
        )


COMMANDS = ["run dictionary-lookup", "tune dictionary-lookup", "compare g", "inspect x.py",
            "predict --model m --out p.csv"]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_a_device(command, monkeypatch):
    monkeypatch.setattr(placement, "count_devices", lambda kind: 0)
    result = CliRunner().invoke(app, [*command.split(), "--device", "cuda"])
    assert result.exit_code != 0
    assert "device is cuda, but torch" in " ".join(result.output.split())


def test_runs_with_gpus_on_a_cluster_find_their_device_there():
    assert chosen_runner(1, "auto", None, 0.5) == Cluster(gpus=0.5, device="auto")
    assert chosen_runner(1, "auto", None, None) == Cluster(device="cpu")
    assert chosen_runner(1, "auto", None, 1, "cuda") == Cluster(gpus=1, device="cuda")
    with pytest.raises(ValueError, match="--device cuda with --ray needs --gpus-per-run"):
        chosen_runner(1, "auto", None, None, "cuda")


def test_workers_are_told_the_device():
    def work(contact):
        return contact.device

    done = runner.Work(work, (), "work")
    assert runner._work_in_process(0, done, "cuda:1") == ("cuda:1", 0)
    [one] = runner.runner_of(1, "cuda:1").run(iter([done]), print, print, None)
    assert one.result == "cuda:1"
    assert runner.runner_of(2, "auto") == runner.Processes(2, "auto")
    with pytest.raises(ValueError, match="workers is a Cluster, which has its own"):
        runner.runner_of(Cluster(), "cuda")


# Copies


class Stream:
    """What the order of copies and computing depends on."""

    events: ClassVar[list] = []

    def __init__(self, device):
        self.device = device

    def record_event(self):
        return self.events.count("copy")

    def wait_event(self, number):
        self.events.append(("wait", number))

    def __enter__(self):
        self.events.append("copy")

    def __exit__(self, *_):
        self.events.append("copy begun")


@pytest.fixture
def streams(monkeypatch):
    """A module like torch.cuda; tensors note that they are pinned and used."""
    events = Stream.events = []
    computing = Stream(GPU)
    module = SimpleNamespace(
        Stream=Stream, stream=lambda stream: stream, current_stream=lambda device: computing
    )
    monkeypatch.setattr(placement, "module_of", lambda kind: module)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda t: [events.append("pin"), t][1])
    to = lambda t, device, non_blocking=False: [events.append(("to", non_blocking)), t][1]  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda t, stream: events.append(stream is computing)
    )
    return events


def test_the_next_batch_is_copied_while_the_last_is_computed(streams):
    for _ in placement.copied_ahead([torch.ones(1), torch.ones(2), torch.ones(3)], GPU):
        streams.append("compute")
    copy = ["pin", "copy", ("to", True), "copy begun"]
    first, second, third = ([("wait", n), True, "compute"] for n in (1, 2, 3))  # of its own copy
    assert streams == [*copy, *copy, *first, *copy, *second, *third]


def test_on_the_cpu_nothing_is_copied():
    batches = [torch.ones(1), None]
    assert list(placement.copied_ahead(batches, torch.device("cpu"))) == batches


def test_a_value_is_moved_with_everything_in_it():
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 2)
    batch = next(iter(NeighborLoader(graph, [2], batch_size=2)))
    value = {"batch": batch, "parts": (graph, [torch.ones(2)], None, 3), "module": nn.Linear(2, 2)}
    with pretend_device():
        there = placement.moved(value, DEVICE)
        assert there["batch"].graphs[0].device == there["batch"].node_id.device == DEVICE
        assert there["parts"][0].device == there["parts"][1][0].device == DEVICE
        assert there["parts"][2:] == (None, 3)
        assert placement.device_of(there["module"]) == DEVICE
        assert placement.moved(there["batch"].graphs, DEVICE)[0] is there["batch"].graphs[0]
        assert placement.moved(there["batch"], DEVICE).node_id is there["batch"].node_id


def test_peak_memory_is_that_of_the_device(monkeypatch):
    module = SimpleNamespace(
        reset_peak_memory_stats=lambda device: None, max_memory_allocated=lambda device: 12
    )
    monkeypatch.setattr(environment, "module_of", lambda kind: module)
    with environment.peak_memory(GPU) as peak:
        pass
    assert peak.bytes == 12


# The library


@pytest.mark.parametrize("convolution", ["GATConv", "GATv2Conv"])
def test_accelerate_keeps_a_model_on_its_device(convolution):
    from torch_geometric import nn as pyg

    torch.manual_seed(0)
    model = nn.ModuleList([getattr(pyg, convolution)(5, 4, heads=2, edge_dim=3)])
    inputs = torch.randn(9, 5), torch.randint(0, 9, (2, 30)), torch.randn(30, 3)
    with torch.no_grad():
        expected = model[0](*inputs)
    with pretend_device():
        model.to(DEVICE)
        before = dict(model.named_parameters())
        dynagat.accelerate(model)
        assert isinstance(model[0], getattr(dynagat, convolution))
        after = dict(model.named_parameters())
        assert {name: id(each) for name, each in after.items()} == {
            name: id(each) for name, each in before.items()
        }
        out = model[0](*placement.moved(inputs, DEVICE))
        out.sum().backward()
        assert out.device == model[0].bias.grad.device == DEVICE
        torch.testing.assert_close(out.cpu(), expected)


def test_how_attentive_takes_a_model_on_a_device():
    torch.manual_seed(0)
    layer = dynagat.GATv2Conv(5, 4, heads=2)
    inputs = torch.randn(9, 5), torch.randint(0, 9, (2, 30))
    expected = str(dynagat.how_attentive(layer, inputs))
    with pretend_device():
        assert (
            str(dynagat.how_attentive(layer.to(DEVICE), placement.moved(inputs, DEVICE)))
            == expected
        )


def test_layerwise_inference_works_on_the_device_of_x():
    torch.manual_seed(0)
    graph = Graph.from_edges(*torch.randint(0, 9, (2, 40)), 9)
    layer, x = dynagat.GATv2Conv(5, 4, add_self_loops=False), torch.randn(9, 5)

    def call(rows, part):
        return layer((rows, rows[: part.num_queries]), part)

    expected = infer([call], x, graph, batch_size=4)
    with pretend_device():
        layer.to(DEVICE)
        out = infer([call], x.to(DEVICE), graph, batch_size=4)
        assert out.device == DEVICE
        torch.testing.assert_close(out.cpu(), expected)


def test_a_comparison_and_its_model_run_on_a_device():
    data = tiny("own")
    with pretend_device():
        options = {"seeds": [0], "settings": ["max_rounds=1", "layers=2", "dim=8"]}
        found = compare(data, mechanisms=["gatv2"], device=str(DEVICE), **options)
        assert found.records[0].versions["device"] == str(DEVICE)
        here = found.best.predict(data).probability
        there = found.best.to(DEVICE).predict(data).probability
        assert found.best.device == DEVICE
    np.testing.assert_allclose(there, here, atol=1e-5)


def test_a_model_of_links_scores_on_a_device(tmp_path):
    torch.manual_seed(0)
    settings, pairs = OWN_LINKS.network, np.array([[0, 1], [1, 2], [3, 4], [2, 5]])
    own = {"ids": np.arange(8), "x": np.random.default_rng(0).normal(size=(8, 3)).astype("f4")}
    own |= {"links": np.sort(codes_of(pairs, 8)), "self_loops": True}
    network = LinkModel.make_network(settings, "gatv2", own)
    about = {"settings": settings, "in_dim": 3, "task": {"kind": "links"}, "ends": ("a", "b")}
    model = LinkModel(network=network, mechanism="gatv2", **own, **about)
    here = model.score([(0, 2), (4, 7)]).score
    with pretend_device():
        there = replace(model).to(DEVICE).score([(0, 2), (4, 7)]).score
    np.testing.assert_allclose(there, here, atol=1e-5)
