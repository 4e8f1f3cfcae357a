"""The house keeps its order: imports go downhill, the library half needs torch and numpy only."""

import ast
import os
import re
import subprocess
import sys
import warnings
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import dynagat

PACKAGE = Path(dynagat.__file__).parent
ROOT = Path(__file__).parent.parent
LIBRARY = ["waiting", "files", "npz_file", "native", "used_rows", "locality"]
LIBRARY += ["graph", "ops", "nn", "analysis"]
# The library imports torch and numpy only.
SUITE = [
    "placement",
    "data",
    "group",
    "sampling",
    "metrics",
    "link_metrics",
    "rmsprop",
    "training",
    "prediction",
    "experiment",
    "significance",
]
SUITE += ["report", "benchmarks", "comparison", "planning", "cli"]
FLOORS = [*LIBRARY, *SUITE, "__init__", "__main__"]


def module_name(path):
    """dynagat.nn.gat, or dynagat.nn for its __init__.py."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def imported_names(path):
    """Full names of all imports in a file, those inside functions too."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path.parent / "_")
    package = package.removesuffix("._")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*up, node.module or ""]).rstrip(".") if node.level else node.module
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported_modules(path):
    """The modules of this package that a file imports: `from dynagat.nn import gat` is nn.gat."""
    for name in imported_names(path):
        if name.split(".")[0] == "dynagat":
            yield name if name in MODULES else name.rpartition(".")[0] or name


def floor_of(module):
    return (module.split(".")[1:] or ["__init__"])[0]


@pytest.mark.parametrize("path", MODULES.values(), ids=list(MODULES))
def test_imports_go_downhill(path):
    here = floor_of(module_name(path))
    for target in imported_modules(path):
        there = floor_of(target)
        assert FLOORS.index(there) <= FLOORS.index(here), f"{here} imports {target}"


def circle_in(graph):
    """The modules of one circle; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: set(imported_modules(path)) - {name} for name, path in MODULES.items()}
    assert circle_in(graph) == []
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) != []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import dynagat", "dynagat"),
        ("from dynagat import nn", "dynagat.nn"),
        ("from dynagat import GATConv", "dynagat"),
        ("from dynagat.nn import gat", "dynagat.nn.gat"),
        ("def f():\n    from ..ops import fused", "dynagat.ops.fused"),
        ("from . import gatv2", "dynagat.nn.gatv2"),
    ],
)
def test_every_form_of_import_is_seen(source, name, monkeypatch):
    path = PACKAGE / "nn" / "gat.py"
    monkeypatch.setattr(type(path), "read_text", lambda self: source)
    assert list(imported_modules(path)) == [name]


@pytest.mark.parametrize(
    "path", [p for n, p in MODULES.items() if floor_of(n) in LIBRARY], ids=module_name
)
def test_the_library_half_needs_torch_and_numpy_only(path):
    """Others are imported inside functions, for what works only with them; so is ops/triton."""
    known = {"dynagat", "torch", "numpy", *sys.stdlib_module_names}
    known |= {"triton"} if path.parent.name == "triton" else set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names]
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            assert {name.split(".")[0] for name in names} <= known


def test_importing_dynagat_imports_neither_pyg_nor_scipy_nor_triton():
    script = "import sys, dynagat; "
    script += "assert not {'torch_geometric', 'scipy', 'dynagat.ops.triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_the_native_module_one_warning_says_so():
    script = """
import sys, warnings
sys.modules["dynagat._native"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch, dynagat
    layer = dynagat.GATv2Conv(4, 2)
    layer(torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])).sum().backward()
    layer(torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]))
ours = [str(w.message) for w in caught if "dynagat" in str(w.message)]
assert len(ours) == 1 and "without its native kernels" in ours[0], ours
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("DYNAGAT_BACKEND", "fused, reference, streamed, triton"),
        ("DYNAGAT_ISA", "avx512, avx2, baseline"),
    ],
)
def test_an_unknown_setting_is_an_error(name, known):
    environment = {**os.environ, name: "fast"}
    command = [sys.executable, "-c", "import dynagat"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert f"{name} must be one of {known}, but is 'fast'" in done.stderr


def python_blocks(page):
    """The code of each ```python or ```py block of a Markdown page, with its line numbers."""
    text = page.read_text()
    for block in re.finditer(r"^```(?:python|py)\b.*\n((?:.*\n)*?)^```$", text, re.MULTILINE):
        yield "\n" * text.count("\n", 0, block.start(1)) + block[1]


PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
PAGES = [page for page in PAGES if any(python_blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_in_the_documentation_run(page):
    """All Python blocks of a page are executed in order, in one namespace."""
    namespace = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in python_blocks(page):
            exec(compile(block, page, "exec"), namespace)
    assert namespace, "no block was executed"


def test_pages_with_examples_are_found():
    names = {page.name for page in PAGES}
    assert {"README.md", "layers.md", "microscope.md", "own-graph.md"} <= names


@pytest.mark.parametrize("fence", ["python", "py"])
def test_blocks_of_both_fences_are_found(fence, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        f"Text.\n\n```{fence}\nx = 1\n```\n\n```sh\nls\n```\n\n```{fence}\ny = 2\n```\n"
    )
    assert [block.strip() for block in python_blocks(page)] == ["x = 1", "y = 2"]


def test_the_example_of_a_pyg_model_runs():
    command = [sys.executable, str(ROOT / "examples" / "pyg_model.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["convs.0"] * 4 + [
        "convs.1"
    ] * 4
