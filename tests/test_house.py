"""The house keeps its order: imports go downhill, the library half needs torch and numpy only."""

import ast
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import dynagat

PACKAGE = Path(dynagat.__file__).parent
ROOT = Path(__file__).parent.parent
FLOORS = ["native", "graph", "ops", "nn", "data", "sampling", "metrics", "training", "experiment"]
FLOORS += ["benchmarks", "analysis", "significance", "report", "comparison", "cli"]


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def floor_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def test_imports_go_downhill():
    for path in PACKAGE.rglob("*.py"):
        here = floor_of(path)
        for name in imports_of(path):
            parts = name.split(".")
            target = parts[1] if parts[0] == "dynagat" and len(parts) > 1 else None
            if here in FLOORS and target in FLOORS:
                assert FLOORS.index(target) <= FLOORS.index(here), f"{here} imports {target}"


def test_importing_dynagat_imports_neither_pyg_nor_scipy():
    script = "import sys, dynagat; assert not {'torch_geometric', 'scipy'} & set(sys.modules)"
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
    [("DYNAGAT_BACKEND", "fused, reference"), ("DYNAGAT_ISA", "avx512, avx2, baseline")],
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
