"""A cluster that can't be joined is refused with one sentence, within seconds."""

import socket
import sys
import threading
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from dynagat.cli import app
from dynagat.experiment import Cluster
from dynagat.experiment.ray_connection import _explained, connected
from dynagat.experiment.runner import WorkerError


@pytest.fixture
def port():
    """A free port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        yield probe.getsockname()[1]


def refusal(address):
    with pytest.raises(WorkerError) as error, connected(address):
        pass
    return str(error.value)


def test_an_address_that_nobody_answers(port):
    place = f"127.0.0.2:{port}"
    assert refusal(place) == (
        f"no Ray cluster answers at {place} (--ray {place}): Connection refused"
    )


def test_an_address_of_another_program():
    with socket.create_server(("127.0.0.2", 0)) as server:
        place = f"127.0.0.2:{server.getsockname()[1]}"
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        assert refusal(place) == f"what answers at {place} (--ray {place}) is no Ray cluster"


def _answer(server):
    client, _ = server.accept()
    with client:
        client.recv(100)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("address", ["here", "ray://host:10001", "host:", ":6379", "host:port"])
def test_an_address_that_is_none(address):
    with pytest.raises(ValueError, match=f"^--ray must be auto or HOST:PORT of .*{address!r}$"):
        Cluster(address)


def test_no_cluster_on_this_machine(monkeypatch, tmp_path):
    from ray._private import services

    monkeypatch.setattr(services, "find_gcs_addresses", set)  # other tests have a cluster
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert refusal("auto").startswith("--ray auto finds no Ray cluster, or several, on this")


def test_another_version_of_ray_is_named_with_both_versions():
    from ray._private.utils import check_version_info

    with pytest.raises(RuntimeError) as error:
        check_version_info({"ray_version": "1.2.3", "python_version": "3.0.0"}, "node here")
    python = ".".join(map(str, sys.version_info[:3]))
    assert _explained(error.value, "head:6379") == (
        "the Ray cluster at head:6379 can't be joined: Version mismatch: The cluster was started "
        "with: Ray: 1.2.3 Python: 3.0.0 This process on node here was started with: "
        f"Ray: {version('ray')} Python: {python}"
    )


def test_without_ray_the_option_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refusal("auto") == "--ray needs Ray: pip install 'dynagat[cluster]'"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ray", "here"], "--ray must be auto or HOST:PORT of the head of a Ray cluster, but is"),
        (["--ray", "auto", "--workers", "2"], "--workers is for this machine, not for --ray, but"),
        (["--device", ""], "device must be one of auto, cpu, cuda, xpu, mps, or one with a number"),
        (["--cpus-per-run", "2"], "--cpus-per-run is for --ray, which is missing"),
        (["--gpus-per-run", "1"], "--gpus-per-run is for --ray, which is missing"),
        (["--ray", "auto", "--cpus-per-run", "0"], "cpus-per-run must be at least 1, but is 0"),
        (["--ray", "auto", "--gpus-per-run", "-1"], "gpus-per-run must not be negative, but is"),
        (["--ray", "auto", "--gpus-per-run", "nan"], "gpus-per-run must be a whole number or"),
        (["--ray", "auto", "--gpus-per-run", "inf"], "gpus-per-run must be a whole number or"),
        (["--ray", "auto", "--gpus-per-run", "1.5"], "gpus-per-run must be a whole number or"),
    ],
)
@pytest.mark.parametrize("command", ["run", "tune"])
def test_options_that_contradict_each_other_are_refused(command, words, sentence, tmp_path):
    where = ["--store" if command == "run" else "--storage", str(tmp_path / "file.sqlite")]
    done = CliRunner().invoke(app, [command, "dictionary-lookup", "--smoke", *where, *words])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"dynagat: {sentence}")
