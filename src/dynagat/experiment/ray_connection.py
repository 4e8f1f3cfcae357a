"""connected: join a Ray cluster that is running. What can't work is refused within seconds."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from dynagat.experiment.runner import WorkerError

CONNECT_SECONDS = 5.0
ATTEMPTS = 3  # to connect, a second apart; Ray's own number is 20
SETTINGS = b"\x04"  # a type of frame of HTTP/2
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + SETTINGS + bytes(5)
PASSED_ON = (
    "DYNAGAT_",
    "OMP_WAIT_POLICY",
    "GLOO_",
    "NCCL_",
)  # variables that workers get from this process


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module ray, connected to a cluster until the block ends; or as it is already."""
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    place = _find(address)
    _check_answers(place, address)
    passed = {n: value for n, value in os.environ.items() if n.startswith(PASSED_ON)}
    try:
        with _few_attempts():
            ray.init(
                address=place,
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env={"env_vars": passed},
            )
    except (RuntimeError, ConnectionError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise WorkerError(_explained(error, place)) from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _few_attempts() -> Iterator[None]:
    from ray._private import ray_constants

    before = ray_constants.NUM_REDIS_GET_RETRIES
    ray_constants.NUM_REDIS_GET_RETRIES = ATTEMPTS
    try:
        yield
    finally:
        ray_constants.NUM_REDIS_GET_RETRIES = before


def _explained(error: Exception, place: str) -> str:
    """Ray says of another token only that it failed to connect; what answers is a cluster."""
    first = one_line(error)
    if "Authentication" in f"{type(error).__name__} {error}" or first.startswith("Failed to conn"):
        return (
            f"the Ray cluster at {place} refuses this machine, perhaps because its token differs; "
            "copy ~/.ray/auth_token from its head, or set RAY_AUTH_TOKEN on all machines"
        )
    return f"the Ray cluster at {place} can't be joined: {first}"


def one_line(error: Exception) -> str:
    """What Ray says, without the details after the first line, except for two versions."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if lines and lines[0].startswith("Version mismatch"):
        return " ".join(lines)
    return lines[0] if lines else type(error).__name__


def _import_ray() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise WorkerError("--ray needs Ray: pip install 'dynagat[cluster]'") from None
    return ray


def check_address(address: str) -> None:
    """Refuse what can't be the address of a cluster."""
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdigit() and "/" not in host):
        raise ValueError(
            f"--ray must be auto or HOST:PORT of the head of a Ray cluster, but is {address!r}"
        )


def _find(address: str) -> str:
    """HOST:PORT of the cluster's head."""
    from ray._private import services  # no public function says where "auto" leads

    try:
        return services.canonicalize_bootstrap_address_or_die(address)
    except ConnectionError:
        raise WorkerError(
            "--ray auto finds no Ray cluster, or several, on this machine; "
            "`ray start --head` starts one, or name one as HOST:PORT"
        ) from None


def _check_answers(place: str, address: str) -> None:
    """Whether a server of gRPC listens there, as the head of a cluster does."""
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), CONNECT_SECONDS) as server:
            server.sendall(GREETING)
            answer = server.recv(9)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise WorkerError(f"no Ray cluster answers at {place} (--ray {address}): {why}") from None
    if answer[3:4] != SETTINGS and os.environ.get("RAY_USE_TLS", "0") == "0":
        raise WorkerError(f"what answers at {place} (--ray {address}) is no Ray cluster")
