"""The Triton kernels, compiled ahead of time for GPUs that are not here: registers and memory.

Nothing is executed. The op's own launching code runs with a function in place of `launch` that
compiles the kernel for a target and keeps what the compiler says.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bench.machine import ROOT
from bench.tables import MISSING, markdown_table
from dynagat.graph import Graph
from dynagat.ops.inputs import AttentionInputs, State
from dynagat.ops.triton import attention, tiles

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SHAPES = ((8, 32), (8, 8), (1, 64), (1, 128), (1, 256), (4, 64), (8, 128))  # H, C
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MECHANISMS = ("gatv2", "gat", "dpgat")
TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
}


@dataclass(frozen=True)
class Compiled:
    """What a compiler says about one kernel."""

    target: str
    mechanism: str
    heads: int
    channels: int
    dtype: str
    options: str  # "plain", or "all": relations, edge features, dropout, weights, used rows
    kernel: str
    warps: int
    registers: int  # per thread
    spilled: int  # bytes per thread on NVIDIA's stack, registers on AMD's
    shared: int  # bytes per program


def compile_all(
    target: str, mechanism: str, shape: tuple[int, int], dtype: torch.dtype, options: str
) -> Iterator[Compiled]:
    """All kernels of a forward and a backward pass."""
    launches: list[tuple[Any, dict[str, int], dict[str, Any]]] = []

    def note(kernel: Any, grid: Any, options: dict[str, int], **arguments: Any) -> None:
        launches.append((kernel, options, arguments))

    with (
        patch.object(attention, "launch", note),
        patch.object(attention, "architecture_of", lambda device: target),
    ):
        _pass(mechanism, *shape, dtype, has_all=options == "all")
    for kernel, choices, arguments in launches:
        numbers = _compile(kernel, choices, arguments, target)
        words = (str(dtype).removeprefix("torch."), options, kernel.fn.__name__)
        yield Compiled(target, mechanism, *shape, *words, choices["num_warps"], *numbers)


def _pass(mechanism: str, heads: int, channels: int, dtype: torch.dtype, *, has_all: bool) -> None:
    """Call forward and backward on a tiny graph, for their launches."""
    inputs = tiny_call(mechanism, heads, channels, dtype, has_all=has_all)
    attention.forward(inputs, has_all)
    dout = torch.zeros(4, heads, channels, dtype=dtype)
    dweights = torch.zeros(4, heads) if has_all else None
    attention.backward(
        inputs, torch.zeros(State.size(inputs, has_all)), dout, dweights, wants_dedge=has_all
    )


def tiny_call(
    mechanism: str, heads: int, channels: int, dtype: torch.dtype, *, has_all: bool
) -> AttentionInputs:
    """Zeros for 4 nodes and 4 edges, without options or with all of them."""
    relations = 2 if has_all else 1
    index = torch.tensor([0, 1, 2, 3])
    relation = index % 2 if has_all else None
    graph = Graph.from_edges(index, index, 4, relation=relation, num_relations=relations)
    graph = graph.compact if has_all else graph
    rows = 4 if has_all else 4 * relations
    is_gat = mechanism == "gat"
    row = (heads,) if is_gat else (heads, channels)
    table = torch.zeros(rows, *row, dtype=torch.float32 if is_gat else dtype)
    value = torch.zeros(rows, heads, channels, dtype=dtype)
    a = torch.zeros(relations, heads, channels) if mechanism == "gatv2" else None
    return AttentionInputs(
        table, table, value if has_all or a is None else None, a,
        torch.zeros(4, 16) if has_all else None,
        torch.zeros(relations, *row, 16) if has_all else None,
        torch.tensor(1) if has_all else None,
        graph.tensors, mechanism, 4, relations, 0.2, 0.5 if has_all else 0.0,
    )  # fmt: skip


def _compile(
    kernel: Any, choices: dict[str, int], arguments: dict[str, Any], target: str
) -> tuple[int, ...]:
    """Registers per thread, what is spilled, bytes of shared memory."""
    constants = {p.name for p in kernel.params if p.is_constexpr}
    signature = {
        name: "constexpr" if name in constants else _type_of(name, arguments[name])
        for name in kernel.arg_names
    }
    constexprs = {name: arguments[name] for name in constants}
    attributes = {
        (n,): [["tt.divisibility", 16]]
        for n, name in enumerate(kernel.arg_names)
        if isinstance(arguments[name], Tensor)
    }
    source = ASTSource(kernel, signature, constexprs, attributes)
    options = {**choices, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=TARGETS[target], options=options)
    shared = compiled.metadata.shared
    if target.startswith("gfx"):
        return *_amd_usage(compiled.asm["amdgcn"]), shared
    return *_nvidia_usage(compiled.asm["cubin"]), shared


def _type_of(name: str, value: Any) -> str:
    if isinstance(value, Tensor):
        return TYPES[value.dtype]
    if name == "threshold":
        return "i64"
    return "fp32" if isinstance(value, float) else "i32"


def _amd_usage(assembly: str) -> tuple[int, int]:
    counts = [re.search(rf"\.vgpr_{name}: +(\d+)", assembly) for name in ("count", "spill_count")]
    registers, spilled = (int(count[1]) for count in counts if count is not None)
    return registers, spilled


def _nvidia_usage(cubin: bytes) -> tuple[int, int]:
    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(program), "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found is not None, text
    return int(found[1]), int(found[2])


# The table and its page

KERNELS = ("attend_kernel", "by_query_kernel", "by_key_kernel")  # the ones that gather rows
SOURCES = ("backward", "edges", "forward", "segments", "tile", "tiles")  # what is compiled
JSON = ROOT / "docs" / "gpu.json"
TEMPLATE = Path(__file__).with_name("gpu.md")


def jobs() -> Iterator[tuple[str, str, tuple[int, int], torch.dtype, str]]:
    for dtype, options, mechanism in product(DTYPES, ("plain", "all"), MECHANISMS):
        for target, shape in product(TARGETS, SHAPES):
            yield target, mechanism, shape, dtype, options


def compile_table(path: Path, processes: int) -> list[Compiled]:
    """Every kernel of every job; those in the file are not compiled again, if they are the same
    kernels under the same Triton."""
    known = json.loads(path.read_text()) if path.exists() else {}
    about = {"triton": triton.__version__, "sources": hash_of_sources()}
    is_same = all(known.get(name) == value for name, value in about.items())
    found = known.get("kernels", []) if is_same else []
    done = {tuple(one[:6]) for one in found}
    todo = [job for job in jobs() if _name(job) not in done]
    with get_context("spawn").Pool(processes) as pool:
        for number, kernels in enumerate(pool.imap(_compile_job, todo)):
            found += [list(astuple(one)) for one in kernels]
            if number % 8 == 7 or number == len(todo) - 1:
                path.write_text(json.dumps({**about, "kernels": found}))
                print(f"{number + 1} of {len(todo)}", file=sys.stderr)
    return [Compiled(*one) for one in found]


def hash_of_sources() -> str:
    """Of the kernels and their table of tiles, as the committed numbers name it."""
    files = [Path(attention.__file__).with_name(f"{name}.py") for name in SOURCES]
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()


def _name(job: tuple[Any, ...]) -> tuple[Any, ...]:
    target, mechanism, shape, dtype, options = job
    return target, mechanism, *shape, str(dtype).removeprefix("torch."), options


def _compile_job(job: tuple[Any, ...]) -> list[Compiled]:
    return list(dict.fromkeys(compile_all(*job)))


def render(kernels: list[Compiled], version: str) -> str:
    """The page of documentation, of what this version of Triton compiled."""
    chosen = [one for one in kernels if one.options == "plain" and one.dtype == "float32"]
    rows = {}
    for one in chosen:
        if one.kernel in KERNELS:
            key = (one.mechanism, f"{one.heads}×{one.channels}", one.kernel.removesuffix("_kernel"))
            rows.setdefault(key, {})[one.target] = f"{one.registers} / {one.shared}"
    header = ["mechanism", "H×C", "kernel", *TARGETS]
    table = [
        [*key, *(cells.get(target, MISSING) for target in TARGETS)] for key, cells in rows.items()
    ]
    spilled = sum(one.spilled > 0 for one in kernels)
    done = {(*astuple(one)[:6],) for one in kernels}
    missing = sum(_name(job) not in done for job in jobs())
    words = {"cut": tiles.CUT, "count": len(kernels), "spilled": spilled or "none"}
    words["missing"] = f" Not compiled yet: {missing} of the combinations." if missing else ""
    opening = TEMPLATE.read_text().format(**words, version=version)
    return f"{opening}\n{markdown_table(header, table, words=3)}\n"


def main() -> None:
    kernels = compile_table(JSON, processes=os.cpu_count() or 1)
    JSON.with_suffix(".md").write_text(render(kernels, triton.__version__))
    spilled = [one for one in kernels if one.spilled]
    for one in spilled:
        print(f"spills: {one}")
    if spilled:
        sys.exit(f"gpu-check: {len(spilled)} of {len(kernels)} kernels spill registers")


if __name__ == "__main__":
    main()
