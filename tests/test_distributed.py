"""Runs that several processes make together: the same as one process, whatever happens to them."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dynagat import placement
from dynagat.cli import app
from dynagat.cli.workers import chosen_runner
from dynagat.comparison import compare, plan
from dynagat.experiment import (
    Cluster,
    Distributed,
    Job,
    Request,
    Store,
    benchmark,
    distributed,
    jobs_of,
    run_lacking,
)
from dynagat.experiment.checkpoint import VARIABLE
from dynagat.experiment.distributed import (
    OutOfMemory,
    WorkerLost,
    is_loss_of_another,
    is_out_of_memory,
    member_device,
)
from dynagat.experiment.runner import Processes, Work, WorkerError
from dynagat.graph import Graph
from dynagat.group import ALONE, Group
from dynagat.prediction.nodes import NodePrediction, NodeProblem, NodeTask
from dynagat.sampling import NeighborLoader, infer
from dynagat.training import Schedule, fit
from tests.groups import FragileTask, fail, in_group
from tests.kills import result
from tests.node_graphs import tiny
from tests.toys import graphs, links, nodes

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

ROOT = Path(__file__).parent.parent
ALL = (99, 99)  # more neighbours than any node has, so that nothing is sampled at random
SCHEDULE = Schedule(lr=0.05, max_rounds=3, patience=9, batch_size=7, stop_at=2, round_passes=3)
NODES = replace(nodes.BENCHMARK, schedule=SCHEDULE, microscope="none")


@pytest.fixture(autouse=True)
def one_thread(threads, monkeypatch):
    threads(1)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def sampled(workers, task=NodeTask, neighbours=ALL, network=NODES.network, **settings):
    made = task(neighbours=neighbours, workers=workers, **settings)
    return replace(NODES, task=made, network=network)


# The parts of a batch


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("count", "batch_size", "size", "lengths"),
    [
        (17, 5, 2, [5, 5, 5, 2]),
        (17, 5, 3, [5, 5, 7]),  # two seeds are too few for three loaders
        (16, 5, 4, [5, 5, 6]),
        (20, 5, 5, [5, 5, 5, 5]),
        (4, 7, 3, [4]),
    ],
)
def test_seeds_are_divided_without_overlap_and_none_is_left_out(
    count, batch_size, size, lengths, shuffle
):
    graph = Graph.from_edges(torch.arange(1, 30), torch.arange(29), 30)
    seeds = torch.arange(3, 3 + count)

    def epoch(**options):
        given = {"batch_size": batch_size, "shuffle": shuffle, "seed": 7, **options}
        return [batch.input_id for batch in NeighborLoader(graph, [2], seeds, **given)]

    parts = [epoch(rank=rank, world_size=size) for rank in range(size)]
    assert all(len(each) == len(lengths) for each in parts)
    batches = [torch.cat(each) for each in zip(*parts, strict=True)]
    assert [len(each) for each in batches] == lengths
    assert torch.equal(torch.cat(batches), torch.cat(epoch()))  # so each seed is there once
    for each in zip(*parts, strict=True):
        sizes = [len(part) for part in each]
        assert min(sizes) > 0
        assert max(sizes) - min(sizes) <= 1


def test_loaders_of_a_group_draw_different_neighbours():
    query, key = torch.arange(2).repeat_interleave(500), torch.arange(1000) % 500
    graph = Graph.from_edges(query, key, 500)
    keys = [
        next(iter(NeighborLoader(graph, [20], [0, 1], batch_size=2, rank=rank, world_size=2)))
        for rank in range(2)
    ]
    assert set(keys[0].node_id[1:].tolist()) != set(keys[1].node_id[1:].tolist())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 2, "world_size": 2}, r"rank must lie in \[0, 2\), but is 2"),
        ({"world_size": 0}, "world_size must be an integer of 1 or more, but is 0"),
        ({"world_size": 3, "batch_size": 2}, "batch_size must be at least world_size=3, but is 2"),
        ({"world_size": 3, "batch_size": 9, "input_nodes": [0, 1]},
         "world_size must be at most 2, the number of inputs, but is 3"),
    ],
)  # fmt: skip
def test_a_division_that_leaves_a_loader_without_seeds_is_refused(options, message):
    graph = Graph.from_edges(torch.arange(1, 9), torch.arange(8), 9)
    with pytest.raises(ValueError, match=f"^{message}$"):
        next(iter(NeighborLoader(graph, [2], **{"batch_size": 4, **options})))


# One process and several


def test_two_workers_with_the_same_batches_learn_as_one(tmp_path):
    """Without dropout and with all neighbours, only the order of sums differs."""
    alone = Job(sampled(1, class_weights="balanced"), "gatv2", 0).run(lambda here: None)
    job = Job(sampled(2, class_weights="balanced"), "gatv2", 0)
    first, second = in_group(2, lambda group: job.run(print, group=group), tmp_path)
    names = ("step", "loss", "train", "valid", "valid_loss", "lr")
    for one, two in zip(alone.history, first.history, strict=True):
        assert [two[name] for name in names] == pytest.approx([one[n] for n in names], rel=1e-4)
    assert first.metrics == pytest.approx(alone.metrics, rel=1e-4)
    assert first.settings["task"].pop("workers") == 2
    assert first.settings == alone.settings
    assert first.key != alone.key
    assert first.weights == second.weights


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_gradients_are_those_of_the_mean_loss_of_the_whole_batch(kind, tmp_path):
    """Though parts differ in size, in the weights of their classes, and in known labels."""
    data = nodes.ToyData().load(0)
    y = {
        "classification": data.y,
        "multilabel": torch.where(torch.rand(90, 3) < 0.4, torch.nan, (torch.rand(90, 3) > 0.7)),
        "regression": data.y.float(),
    }[kind]
    width = 1 if kind == "regression" else 3
    problem = NodeProblem(data.x, data.edges, y, data.split, kind, width)
    weights = "none" if kind == "regression" else "balanced"
    task = NodeTask(ALL, shuffle=False, class_weights=weights)
    network = nodes.ToyNetwork().build(problem, "gatv2")

    def gradients(group):
        prediction = NodePrediction(problem, task, 15, group)
        batch = next(iter(prediction.batches(torch.Generator())))
        averaged = group.wrap(network)  # as long as it lives
        prediction.loss(averaged, batch)[0].backward()
        loss, _ = prediction.loss(network, batch)
        return float(group.mean(loss.detach())), [p.grad.numpy() for p in network.parameters()]

    parts = in_group(2, gradients, tmp_path)
    whole = gradients(ALONE)
    for loss, grads in parts:
        assert loss == pytest.approx(whole[0], rel=1e-5)
        for one, two in zip(whole[1], grads, strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)


def test_a_part_without_known_labels_takes_no_part_in_the_loss(tmp_path):
    data = nodes.ToyData().load(0)
    y = torch.full((90, 3), torch.nan)
    y[:3] = 1.0
    problem = NodeProblem(data.x, data.edges, y, data.split, "multilabel", 3)
    network = nodes.ToyNetwork().build(problem, "gatv2")

    def loss(group):
        prediction = NodePrediction(problem, NodeTask(ALL, shuffle=False), 6, group)
        batch = next(iter(prediction.batches(torch.Generator())))
        return float(prediction.loss(network, batch)[0].detach())

    first, second = in_group(2, loss, tmp_path)
    assert second == 0
    assert first / 2 == pytest.approx(loss(ALONE), rel=1e-5)


def test_inference_is_divided_and_gives_every_worker_the_same_rows(tmp_path):
    torch.manual_seed(0)
    graph = Graph.from_edges(torch.randint(10, (40,)), torch.randint(10, (40,)), 10)
    x, weight = torch.randn(10, 4), torch.randn(4, 3)
    counts = []

    def first(x, part):
        counts.append(part.num_queries)
        return torch.zeros(part.num_queries, 3).index_add(
            0, part.query_index, (x @ weight)[part.key_index]
        )

    def last(x, part):
        return x[: part.num_queries] + 1

    def outputs(group):
        out = infer([first, last], x, graph, batch_size=2, group=group)
        return out.numpy(), sum(counts)

    [(expected, _)] = [outputs(ALONE)]
    counts.clear()
    parts = in_group(3, outputs, tmp_path)
    assert [count for _, count in parts] == [3, 3, 4]
    for rows, _ in parts:
        np.testing.assert_allclose(rows, expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"^out must be None in a group of 2 processes, but is"):
        infer([last], x, graph, out=torch.empty(10, 4), group=Group(0, 2))


def test_outputs_in_files_are_exchanged_like_those_in_memory(tmp_path, monkeypatch):
    job = Job(sampled(2), "gatv2", 0)
    in_memory, _ = in_group(2, lambda group: job.run(print, group=group), tmp_path)
    monkeypatch.setenv("DYNAGAT_MEMORY", "100")  # bytes
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    in_files = in_group(2, lambda group: job.run(print, group=group), tmp_path)
    for each in in_files:
        assert each.metrics == in_memory.metrics
        assert each.weights == in_memory.weights


def test_workers_draw_different_dropout_and_keep_the_same_weights_and_statistics(tmp_path):
    network = nodes.DropoutNetwork()
    made = sampled(2, network=network, neighbours=(2, 2))

    def train(group):
        problem = made.data.load(0)
        torch.manual_seed(0)
        built = network.build(problem, "gatv2")
        task = made.task.prepare(problem, SCHEDULE).together(group)
        outcome = fit(built, task, SCHEDULE, torch.Generator().manual_seed(0), group=group)
        state = {name: value.numpy() for name, value in outcome.last_state.items()}
        return state, outcome.history, float(torch.rand(()))

    first, second = in_group(2, train, tmp_path)
    assert any("running_mean" in name for name in first[0])
    for name, value in first[0].items():
        np.testing.assert_array_equal(value, second[0][name])
    assert first[1] == second[1]
    assert first[2] != second[2]


# The launcher


def run_work(size, function, *arguments):
    said = []
    work = iter([Work(function, arguments, "the work")])
    done = list(Distributed(size).run(work, lambda work, message: None, said.append, None))
    return done, said


def test_a_run_of_which_a_worker_is_killed_gives_the_same_record(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    folder = tmp_path / "fragile"
    made = sampled(2, FragileTask, (2, 2), nodes.DropoutNetwork(), folder=str(folder))
    job, told, said, rounds = Job(made, "gatv2", 0), [], [], []
    undisturbed, _ = in_group(2, lambda group: job.run(lambda here: None, group=group), tmp_path)
    folder.mkdir()
    with Store(tmp_path / "records.sqlite") as store:
        [record] = run_lacking(
            [job],
            store,
            Distributed(2),
            lambda job, here: rounds.append(here.round),
            lambda job, text, seconds: told.append(text),
            said.append,
        )
        assert result(record, store.weights(record.key)) == result(undisturbed, undisturbed.weights)
    assert record.attempts == 2
    assert told == ["continues after round 1 and 1 of the next one's epochs"]
    assert rounds == [1, 1, 2, 3]  # the first one again, when it is continued
    assert said == [
        "toy-nodes gatv2 seed=0: worker 1 was killed by signal 9, perhaps because memory ran out; "
        "all 2 workers are started again"
    ]
    assert (folder / "epochs").stat().st_size == 10  # the fifth of nine epochs twice
    assert not (tmp_path / "records.sqlite.checkpoints").exists()


def test_an_error_of_a_worker_ends_the_run_and_is_raised_as_it_is():
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"^a worker fails on cpu$"):
        run_work(2, fail)
    assert time.monotonic() - started < 60


def test_work_that_loses_workers_again_and_again_is_given_up_and_the_other_work_is_done(
    monkeypatch,
):
    outcomes = [WorkerLost("worker 1 was killed"), OutOfMemory(), WorkerLost("killed"), "done"]
    launches = iter([outcomes[0]] * 3 + outcomes[1:])
    monkeypatch.setattr("dynagat.experiment.distributed._Launch.run", lambda self: next(launches))
    said, works = [], [Work(fail, (), name) for name in ("first", "second", "third")]
    run = Distributed(2).run(iter(works), lambda work, message: None, said.append, None)
    done = next(run)
    assert (done.work.name, done.result, done.attempts) == ("third", "done", 2)
    with pytest.raises(WorkerError) as error:
        next(run)
    assert str(error.value).split("; ") == [
        "first lost a worker 3 times (worker 1 was killed)",
        "second needs more memory than its workers have",
        "finished work is stored, and the same command runs what is missing",
    ]
    assert [each.partition(";")[0] for each in said] == [
        *["first: worker 1 was killed"] * 2,
        "first lost a worker 3 times (worker 1 was killed)",
        "third: killed",
    ]


@pytest.mark.parametrize(
    ("error", "is_memory", "is_other"),
    [
        (MemoryError(), True, False),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9"), True, 0),
        (RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:1"), False, True),
        (ValueError("gloo"), False, False),
    ],
)
def test_errors_are_told_apart(error, is_memory, is_other):
    assert is_out_of_memory(error) == is_memory
    assert is_loss_of_another(error) == is_other


# What is refused


def test_numbers_of_workers_that_cant_be(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for ddp in (0, 3, -1):
        with pytest.raises(
            ValueError, match=f"^--ddp must lie between 1 and the 2 cores .* but is {ddp}"
        ):
            chosen_runner(1, None, None, None, ddp=ddp)
    with pytest.raises(ValueError, match=r"^--workers 2 makes several runs .*; give one of them$"):
        chosen_runner(2, None, None, None, ddp=2)
    with pytest.raises(ValueError, match=r"^--ddp must be at least 1, but is 0$"):
        chosen_runner(1, "auto", None, None, ddp=0)
    assert chosen_runner(1, None, None, None, ddp=2) == Distributed(2)
    assert chosen_runner(1, "auto", 2, None, ddp=8) == Cluster("auto", 2, size=8)
    assert chosen_runner(3, None, None, None, ddp=1) == Processes(3)


def test_each_worker_has_a_gpu_of_its_own(monkeypatch):
    found = {"cuda": 2, "xpu": 0, "mps": 0}
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for module in (placement, distributed):
        monkeypatch.setattr(module, "count_devices", found.get)
    monkeypatch.setattr(placement, "_current", lambda kind: 0)
    for device in ("cuda", "auto"):
        runner = chosen_runner(1, None, None, None, device, 2)
        assert runner == Distributed(2, device)
        assert [member_device(device, rank) for rank in range(2)] == ["cuda:0", "cuda:1"]
        with pytest.raises(ValueError, match=f"^--ddp must be at most 2, .* {device}, but is 3$"):
            Distributed(3, device)
    with pytest.raises(ValueError, match=r"^with --ddp 2, device must be .* but is cuda:1$"):
        chosen_runner(1, None, None, None, "cuda:1", 2)
    found |= {"cuda": 0, "mps": 1}
    assert member_device("cpu", 1) == "cpu"
    with pytest.raises(ValueError, match=r"^with --ddp 2, device must be .* but is mps$"):
        Distributed(2, "auto")


@pytest.mark.parametrize(
    ("gpus", "device", "message"),
    [
        (1, "cuda:0", "device must be auto, cpu or cuda, .* but is cuda:0"),
        (0.5, None, "gpus-per-run must be a whole number, .* but is 0.5"),
    ],
)
def test_workers_on_a_cluster_do_not_share_a_gpu(gpus, device, message):
    with pytest.raises(ValueError, match=f"^with --ddp 2, {message}$"):
        chosen_runner(1, "auto", None, gpus, device, 2)
    assert chosen_runner(1, "auto", None, 1, None, 2) == Cluster(gpus=1, device="auto", size=2)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (NODES, "--ddp 2 divides batches of sampled neighbours, but this trains on the whole"),
        (replace(NODES, task=NodeTask(roots=9)), "--ddp 2 divides .* this trains on random walks"),
        (links.BENCHMARK, "--ddp 2 is for predictions of nodes .* not for graphs or links"),
        (graphs.BENCHMARK, "--ddp 2 is for predictions of nodes .* not for graphs or links"),
    ],
)
def test_a_benchmark_that_cant_be_divided_is_refused(made, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        jobs_of(made, Request(workers=2))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run pubmed --ddp 2", "--ddp 2 divides batches of sampled neighbours, but this trains on"),
        ("run qm9 --ddp 2", "--ddp 2 is for predictions of nodes that are trained on sampled"),
        ("run ogbn-products --ddp 0", "--ddp must lie between 1 and the"),
        ("compare own --ddp 2 --workers 2", "--workers 2 makes several runs at a time and --ddp 2"),
        ("run ogbn-products --ddp 2 --ray 127.0.0.1:1", "no Ray cluster answers at "),
    ],
)
def test_the_command_refuses_in_one_sentence(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    done = CliRunner().invoke(app, words.split(), catch_exceptions=False)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"dynagat: {message}")
    assert done.stderr.count("\n") == 1


def test_the_setting_and_the_number_of_processes_must_agree(tmp_path):
    [job] = jobs_of(sampled(1), Request(workers=2, seeds=(0,), mechanisms=("gat",)))
    assert job.benchmark.workers == 2
    message = "^toy-nodes has the setting workers=2, so its runs need --ddp 2, but are made with"
    with Store(tmp_path / "a.sqlite") as store, pytest.raises(ValueError, match=message):
        list(run_lacking([job], store, 1))
    with pytest.raises(ValueError, match=message):
        benchmark.run(job.benchmark, "gat", 0)


def test_records_of_one_worker_keep_their_keys():
    assert "workers" not in sampled(1).stored_settings()["task"]
    assert sampled(1).key("gat", 0) != sampled(2).key("gat", 0)


# Comparisons


def jobs_of_comparison(folder, settings):
    """Workers and neighbours of the runs of a comparison with --ddp 2."""
    seen = []

    def stop(jobs, store, workers):
        seen.extend((job.benchmark.workers, job.benchmark.task.neighbours) for job in jobs)
        raise WorkerError("stopped")

    options = {"mechanisms": ["gat"], "seeds": [0], "settings": settings, "folder": folder}
    with pytest.raises(WorkerError, match=r"^stopped$"):
        compare(tiny("own"), workers=Distributed(2), run=stop, **options)
    return seen


def test_a_comparison_divides_steps_on_sampled_neighbours_only(tmp_path):
    with pytest.raises(ValueError, match=r"^--ddp 2 divides batches of sampled neighbours, but"):
        compare(tiny("own"), workers=Distributed(2), folder=tmp_path)
    assert jobs_of_comparison(tmp_path, ["neighbours=3,3", "layers=2"]) == [(2, (3, 3))]


def test_a_comparison_samples_by_itself_if_a_step_does_not_fit_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "memory", lambda: plan.step_bytes(tiny("own"), 64, 2))
    [(workers, neighbours)] = jobs_of_comparison(tmp_path, [])
    assert workers == 2
    assert neighbours == (plan.NUM_SAMPLED,) * 2


# Your own training loop


def test_the_example_of_a_training_loop_runs_on_two_processes():
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *torchrun, str(ROOT / "examples" / "ddp.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.rpartition(" ")[0] for line in done.stdout.splitlines()] == [
        f"epoch {epoch}: accuracy" for epoch in range(5)
    ]
    assert float(done.stdout.split()[-1]) > 0.9
