"""Hosts of a cluster: their versions, the files they see, and copies of graphs that they lack."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynagat.data.arrays import fingerprint
from dynagat.data.catalog import load, missing
from dynagat.data.store import copy_folder, find_folder, stored_names
from dynagat.experiment.environment import versions
from dynagat.files import new_folder

FILES = "files"  # instead of a fingerprint: a graph that is not stored, but can be
BLOCK = 1 << 26  # bytes of a file in one object


@dataclass(frozen=True)
class Host:
    """What a node of the cluster has."""

    node: str  # Ray's id
    name: str  # its address
    versions: Mapping[str, str]
    sees_file: bool  # the file next to which runs keep checkpoints
    fingerprint: str  # of the graph that was asked about; empty if it can't be read there

    def check(self, expected: Mapping[str, str]) -> None:
        """Refuse another version of what determines results."""
        for name, here in expected.items():
            there = self.versions.get(name)
            if there != here:
                raise ValueError(
                    f"node {self.name} has {name} {there}, but this machine has {here}; "
                    "install the same versions on all nodes"
                )

    def check_graph(self, graph: str, expected: str) -> None:
        """Refuse a graph of the same name with another content."""
        there = self.fingerprint
        if there and FILES not in (there, expected) and there != expected:
            raise ValueError(
                f"node {self.name} has another graph {graph} than this machine; "
                "remove one of them with `dynagat data remove`"
            )


def describe_host(node: str, name: str, graph: str, file: tuple[str, int] | None) -> Host:
    """Of the machine that calls it. `file` is a path and its inode."""
    return Host(node, name, versions(), _sees(file), graph_on_host(graph))


def _sees(file: tuple[str, int] | None) -> bool:
    if file is None:
        return False
    path, inode = file
    return os.path.exists(path) and os.stat(path).st_ino == inode


def graph_on_host(graph: str) -> str:
    """The fingerprint of a graph; "files" if it can be stored from its files, "" if not."""
    if not graph:
        return ""
    if graph in stored_names() or Path(graph).is_absolute():
        try:
            return fingerprint(find_folder(graph))
        except (ValueError, OSError):
            return ""
    return "" if missing(graph) else FILES


def copy_graph(ray: Any, graph: str, places: Sequence[Any]) -> None:
    """Copy a stored graph to nodes, given by their scheduling strategies.

    Each block of a file becomes one object, which Ray sends to each node once.
    """
    folder = find_folder(graph) if Path(graph).is_absolute() else load(graph).folder
    assert folder is not None
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    blocks = [(str(path.relative_to(folder)), [ray.put(block) for block in _blocks(path)])
              for path in paths]  # fmt: skip
    store = ray.remote(num_cpus=0, max_retries=0)(store_copy)
    content = fingerprint(folder)
    calls = [store.options(scheduling_strategy=each).remote(graph, content, blocks)
             for each in places]  # fmt: skip
    ray.get(calls)


def _blocks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            yield block


def store_copy(graph: str, content: str, files: list[tuple[str, list[Any]]]) -> None:
    """Write the copy of a graph on the machine that calls it."""
    import ray

    folder = copy_folder(graph)
    if folder.exists() and fingerprint(folder) == content:
        return  # written meanwhile by another node with the same cache folder
    with new_folder(folder) as new:
        for name, blocks in files:
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                for block in blocks:
                    file.write(ray.get(block))
