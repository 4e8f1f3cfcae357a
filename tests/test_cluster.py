"""Runs on a Ray cluster of three nodes on this machine, on loopback and free ports."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from dynagat.comparison import compare
from dynagat.data.store import open_graph
from dynagat.experiment import Cluster, Job, Store, Study, Tuning, cluster, run_lacking, tune
from dynagat.experiment.cluster_group import cause_of
from dynagat.experiment.ray_connection import connected
from dynagat.experiment.runner import Work, WorkerError
from dynagat.experiment.storage import opened
from dynagat.training import Schedule
from tests.groups import FragileTask, in_group
from tests.kills import SlowTask, result
from tests.listeners import TABLES, listeners
from tests.node_graphs import tiny
from tests.toys import nodes

LOOPBACK = "127.0.0.1"  # with another address, even of loopback, Ray listens on all interfaces
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "2",
    "DYNAGAT_CHECKPOINT_SECONDS": "0",
    "GLOO_SOCKET_IFNAME": "lo",
}
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Nodes:
    """Ray's cluster utility, with nodes of one CPU."""

    def __init__(self):
        from ray.cluster_utils import Cluster as RayCluster

        options = {"include_dashboard": False}
        self.options = {"num_cpus": 1, "node_ip_address": LOOPBACK}
        self.options |= {"object_store_memory": 80 << 20}
        self.ray = RayCluster(initialize_head=True, head_node_args={**self.options, **options})
        self.address = self.ray.address
        self.folder = os.environ["RAY_TMPDIR"]

    def add(self, **options):
        return self.ray.add_node(**{**self.options, **options})

    def remove(self, node):
        self.ray.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def run_of_two(tmp_path_factory):
    """A run that two workers make, what it gives, and the folder that lets one of them be killed.

    It is made before the cluster starts: a fork may block the threads of a connection.
    """
    folder = tmp_path_factory.mktemp("group")
    task = FragileTask(neighbours=(2, 2), workers=2, folder=str(folder / "fragile"))
    [job] = (replace(job, benchmark=replace(job.benchmark, task=task)) for job in jobs_of(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", SETTINGS["GLOO_SOCKET_IFNAME"])
        first, _ = in_group(2, lambda group: job.run(lambda here: None, group=group), folder)
    return job, result(first, first.weights), Path(task.folder)


@pytest.fixture(scope="module")
def nodes_of_cluster(run_of_two):
    """A head and one more node, with a cache folder of their own."""
    home, before = Path.home() / ".ray", dict(os.environ)
    was_there = home.exists()
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a short path, as sockets need
    os.environ.update(SETTINGS, RAY_TMPDIR=folder, DYNAGAT_CACHE=f"{folder}/cache")
    started = Nodes()
    started.add()
    with connected(started.address):
        yield started
    started.ray.shutdown()
    os.environ.clear()
    os.environ.update(before)
    shutil.rmtree(folder, ignore_errors=True)
    assert home.exists() == was_there


@pytest.fixture
def ray_cluster(nodes_of_cluster):
    return Cluster(nodes_of_cluster.address)


@pytest.mark.skipif(not TABLES, reason="reads the tables of Linux")
def test_no_process_of_the_cluster_listens_to_other_machines(nodes_of_cluster, ray_cluster):
    found = []

    def look(work, message):
        found.extend(listeners(nodes_of_cluster.folder))
        return message

    [done] = ray_cluster.run(iter([work_of(live)]), look, lambda text: None, None)
    assert done.result == "how are you?"
    assert {"gcs_server", "raylet"} <= {name for name, _ in found}
    assert {address for _, address in found} == {LOOPBACK}


def work_of(function, *arguments, graph=""):
    return Work(function, arguments, function.__name__, graph)


def run_work(runner, *work):
    """Results by the name of the work, and the sentences about the workers."""
    said = []
    done = runner.run(iter(work), lambda work, message: message, said.append, None)
    return {each.work.name: each.result for each in done}, said


def jobs_of(number, rounds=6, **parts):
    """Slow runs, whole and sampled in turn."""
    schedule = Schedule(lr=0.05, max_rounds=rounds, patience=rounds, batch_size=8, stop_at=2)
    whole = replace(nodes.BENCHMARK, schedule=schedule, task=SlowTask(), microscope="none")
    whole = replace(whole, **parts)
    sampled = replace(whole, task=replace(whole.task, neighbours=(2, 2)))
    return [Job((whole, sampled)[seed % 2], "gatv2", seed) for seed in range(number)]


def results(path, jobs, workers, **events):
    """What must be the same wherever runs are made, and the records."""
    with Store(path) as store:
        records = list(run_lacking(jobs, store, workers, **events))
        values = {each.key: result(each, store.weights(each.key)) for each in records}
        assert len(values) == len(records)
        assert store.keys() >= set(values)
    return values, records


def test_a_sweep_gives_the_same_records_here_in_processes_and_on_a_cluster(ray_cluster, tmp_path):
    jobs, said, rounds = jobs_of(3), [], []
    diverging = replace(jobs[0].benchmark.schedule, lr=1e30)
    jobs.append(replace(jobs[0], benchmark=replace(jobs[0].benchmark, schedule=diverging)))
    here, _ = results(tmp_path / "here.sqlite", jobs, 1)
    there, _ = results(tmp_path / "processes.sqlite", jobs, 2)
    far, records = results(
        tmp_path / "cluster.sqlite",
        jobs,
        ray_cluster,
        watch=lambda job, here: rounds.append((job.key, here.round)),
        say=said.append,
    )
    assert here == there == far
    assert {each.ended for each in records} == {"budget", "diverged"}
    assert [each.attempts for each in records] == [1] * 4  # one that diverged is not started again
    assert sorted(rounds) == sorted((r.key, each["round"]) for r in records for each in r.history)
    [sentence] = said
    assert sentence.startswith(f"cluster {ray_cluster.address}: 2 nodes, 2 CPUs, 0 GPUs, 2 runs at")


def test_a_node_that_leaves_in_the_middle_loses_no_run_and_repeats_none(
    nodes_of_cluster, ray_cluster, tmp_path
):
    jobs, added = jobs_of(3, rounds=30), [nodes_of_cluster.add(num_cpus=2)]
    path, said = tmp_path / "records.sqlite", []
    runner = replace(ray_cluster, cpus=2)  # only on the nodes that are added here

    def watch(job, here):
        if len(added) == 1 and here.round > 3:
            nodes_of_cluster.remove(added[0])
            added.append(nodes_of_cluster.add(num_cpus=2))

    values, records = results(path, jobs, runner, watch=watch, say=said.append)
    nodes_of_cluster.remove(added[1])
    assert values == results(tmp_path / "here.sqlite", jobs, 1)[0]
    assert sorted(each.attempts for each in records) == [1, 1, 2]
    assert any("was lost" in each and each.endswith("it is started again") for each in said)
    assert sum(each.startswith("cluster ") for each in said) >= 2
    with Store(path) as store:
        assert sorted(each.attempts for each in store.records()) == [1, 1, 2]
        assert list(run_lacking(jobs, store, ray_cluster)) == []


def test_work_for_which_no_node_is_left_is_given_up(nodes_of_cluster, ray_cluster, monkeypatch):
    monkeypatch.setattr(cluster, "ROOM_SECONDS", 2)
    added = nodes_of_cluster.add(num_cpus=2)
    runner = replace(ray_cluster, cpus=2)  # only on that node

    def leave(work, message):
        nodes_of_cluster.remove(added)

    with pytest.raises(WorkerError) as error:
        list(runner.run(iter([work_of(live)]), leave, lambda text: None, None))
    assert str(error.value) == (
        "the nodes of the cluster have not had the resources for a run (--cpus-per-run 2) for "
        "2 seconds; finished work is stored, and the same command runs what is missing"
    )


def test_a_driver_that_was_stopped_continues(ray_cluster, tmp_path):
    [job], told = jobs_of(1, rounds=12), []

    def stop(job, here):
        if here.round == 6:
            raise KeyboardInterrupt

    path = tmp_path / "records.sqlite"
    with pytest.raises(KeyboardInterrupt):
        results(path, [job], ray_cluster, watch=stop)
    events = {"tell": lambda job, text, seconds: told.append(text)}
    assert results(path, [job], ray_cluster, **events)[0] == results(tmp_path / "b", [job], 1)[0]
    assert [text.partition(" round ")[0] for text in told] == ["continues after"]


def test_tuning_gives_the_same_trials_here_and_on_a_cluster(ray_cluster, tmp_path):
    slow = replace(nodes.BENCHMARK, microscope="none")
    tuning = Tuning(slow, "gatv2", {"schedule.lr": (0.05, 0.01)}, (0,), "grid")

    def values(path, workers):
        with opened(path) as storage:
            [tuned] = tune([Study(tuning, storage)], 2, path, workers)
        return [(trial.settings, trial.values, trial.rounds) for trial in tuned.trials]

    assert values(tmp_path / "here", 1) == values(tmp_path / "cluster", ray_cluster)


# Several workers for a run


def test_workers_of_a_cluster_make_a_run_together_also_if_one_is_killed(
    nodes_of_cluster, ray_cluster, run_of_two, tmp_path
):
    job, undisturbed, folder = run_of_two
    said, told, rounds, found = [], [], [], set()

    def watch(job, here):
        rounds.append(here.round)
        if here.round == 3:
            found.update(listeners(nodes_of_cluster.folder))

    folder.mkdir()
    events = {"watch": watch, "say": said.append, "tell": lambda *texts: told.append(texts[1])}
    path = tmp_path / "records.sqlite"
    values, [record] = results(path, [job], replace(ray_cluster, size=2), **events)
    assert values == {job.key: undisturbed}
    assert rounds == [1, 2, 3, 4, *range(1, 7)]  # those of the checkpoint again
    assert record.attempts == 2
    assert told == ["continues after round 4"]
    assert said[0].endswith("2 nodes, 2 CPUs, 0 GPUs, 1 runs at a time")
    assert said[1].endswith(
        "its worker was lost (worker 1 was killed, perhaps because memory ran out); "
        "it is started again"
    )
    # The store of torch by which Ray Train's workers find each other can't be told an address.
    open_to_others = {name for name, address in found if address != LOOPBACK}
    assert open_to_others <= {"ray::RayTrainWorker"[:15]}


def test_what_ended_workers_that_make_a_run_together_is_found(ray_cluster):
    from ray.exceptions import WorkerCrashedError

    gloo, own = RuntimeError("[gloo] Connection closed by peer"), ValueError("lr must be")
    assert cause_of({0: gloo, 1: own}) is own
    assert isinstance(cause_of({0: gloo, 1: MemoryError()}), MemoryError)
    killed = cause_of({0: gloo, 1: WorkerCrashedError()})
    assert str(killed) == "worker 1 was killed, perhaps because memory ran out"


def test_more_workers_than_the_cluster_has_room_for_are_refused(ray_cluster):
    with pytest.raises(
        ValueError,
        match=r"^--ddp 3 needs as many workers at a time, but the 2 nodes of the cluster have the "
        r"resources for 2$",
    ):
        run_work(replace(ray_cluster, size=3), work_of(live))


# Data


def edges_of(contact, name):
    return open_graph(name).num_edges, contact.shares_files


def test_a_graph_that_nodes_lack_is_copied_to_them_once(ray_cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))  # of this process only
    graph = tiny("own").save()
    work = work_of(edges_of, graph.name, graph=graph.name)
    done, said = run_work(ray_cluster, work)
    assert done == {"edges_of": (graph.num_edges, False)}
    assert [each for each in said if "is copied to" in each] == [
        f"{graph.name} is copied to {LOOPBACK}, {LOOPBACK}, where it is not"
    ]
    assert "is copied" not in str(run_work(ray_cluster, work)[1])
    tiny("own", source="another").save(replace=True)
    with pytest.raises(ValueError, match=f"^node {LOOPBACK} has another graph {graph.name} than"):
        run_work(ray_cluster, work)


class Hidden(type(Path())):
    """A path that other processes can't follow; `resolve` would find what they can."""

    def resolve(self, strict=False):
        return self


def test_a_comparison_copies_its_graph_to_nodes_that_lack_it(
    ray_cluster, threads, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    threads(1)
    stored = tiny("own").save(tmp_path / "graph")
    hidden = replace(stored, folder=Hidden("/proc/self/cwd/graph"))
    said, settings = [], ["max_rounds=3", "dim=8", "heads=2", "layers=2"]

    def run(jobs, store, workers):
        list(run_lacking(jobs, store, workers, say=said.append))

    options = {"mechanisms": ["gat"], "seeds": [0], "settings": settings}
    [there] = compare(hidden, workers=ray_cluster, run=run, **options).records
    [here] = compare(hidden, **options).records
    assert any(each.startswith("/proc/self/cwd/graph is copied to") for each in said)
    assert there.metrics == here.metrics


# Trouble


def die(contact):
    os.kill(os.getpid(), signal.SIGKILL)


def fill_memory(contact):
    raise MemoryError


def refuse(contact):
    raise ValueError("lr must be above 0, but is -1")


def live(contact):
    return contact.ask("how are you?")


def test_work_that_kills_its_workers_is_given_up_and_the_other_work_is_done(ray_cluster):
    work = iter(map(work_of, (die, live, fill_memory)))
    done = ray_cluster.run(work, lambda work, text: text, lambda text: None, None)
    assert next(done).result == "how are you?"
    with pytest.raises(WorkerError) as error:
        next(done)
    assert sorted(str(error.value).split("; ")) == [
        "die lost its worker 3 times (its process was killed, perhaps because memory ran out)",
        "fill_memory needs more memory than its worker has",
        "finished work is stored, and the same command runs what is missing",
    ]


def test_an_error_of_the_work_is_raised_as_it_is(ray_cluster):
    with pytest.raises(ValueError, match=r"^lr must be above 0, but is -1$"):
        run_work(ray_cluster, work_of(refuse))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cpus": 64}, "--cpus-per-run 64 is more than any of the 2 nodes of the cluster has; "
                       "the largest has 1 CPUs and 0 GPUs"),
        ({"gpus": 0.5}, "--cpus-per-run 1 and --gpus-per-run 0.5 is more than any of the 2 nodes"),
    ],
)  # fmt: skip
def test_more_resources_than_any_node_has_are_refused(ray_cluster, options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        run_work(replace(ray_cluster, **options), work_of(live))


def test_another_token_is_refused(ray_cluster, tmp_path):
    words = ["run", "dictionary-lookup", "--smoke", "--ray", ray_cluster.address]
    done = subprocess.run(
        [sys.executable, "-m", "dynagat", *words],
        env={**os.environ, "RAY_AUTH_TOKEN": "1" * 32},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    sentence = f"dynagat: the Ray cluster at {ray_cluster.address} refuses this machine, perhaps"
    assert done.returncode == 2
    assert sentence in done.stderr


def test_another_version_on_a_node_is_refused(ray_cluster, monkeypatch):
    monkeypatch.setattr(
        cluster, "versions", lambda: dict.fromkeys(("dynagat", "torch", "numpy"), "9")
    )
    with pytest.raises(
        ValueError, match=f"^node {LOOPBACK} has dynagat .*, but this machine has 9"
    ):
        run_work(ray_cluster, work_of(live))


def test_a_store_that_nodes_do_not_see_is_named_and_runs_keep_no_checkpoints(
    ray_cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(cluster, "_identity", lambda path: (str(path), 0))  # of another disk
    said = []
    _, [record] = results(tmp_path / "records.sqlite", jobs_of(1), ray_cluster, say=said.append)
    assert record.ended == "budget"
    assert [each for each in said if "does not see" in each] == [
        f"{LOOPBACK} does not see {tmp_path / 'records.sqlite'}: runs there keep no checkpoints, "
        "and start from the beginning if their worker is lost"
    ] * 2
