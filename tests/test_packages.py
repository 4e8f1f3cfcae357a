"""The source package holds what a build needs; without a compiler, a wheel is built as well."""

import ast
import shutil
import tarfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from scikit_build_core import build

import dynagat
from tests import smoke

ROOT = Path(__file__).parent.parent
NEEDED = ["pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "tests/smoke.py"]
OTHERS = ["src/dynagat/_native.abi3.so", "src/dynagat/__pycache__/graph.pyc", "build/kernels.o"]
OTHERS += ["tests/test_graph.py", "docs/layers.md", "results/cora.jsonl", "records.sqlite"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small copy of the source tree, which is the current folder."""
    kernels = [path.relative_to(ROOT) for path in ROOT.glob("csrc/*")]
    for name in [*NEEDED, *kernels, ".gitignore", "src/dynagat/__init__.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "src/dynagat/page.html").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_source_package_holds_what_a_build_needs_and_nothing_else(project, tmp_path_factory):
    needed = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    for name in OTHERS:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    folder = tmp_path_factory.mktemp("dist")
    with tarfile.open(folder / build.build_sdist(str(folder))) as package:
        names = {name.partition("/")[2] for name in package.getnames()}
    assert names == needed - {".gitignore"} | {"PKG-INFO"}


def test_without_a_compiler_the_wheel_is_for_any_machine(project, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    assert build.build_wheel(str(project)) == "dynagat-0.1.0-py3-none-any.whl"


@pytest.mark.native
def test_the_smoke_test_of_the_wheels_passes():
    smoke.check_layers(*smoke.small_graph())
    smoke.check_microscope(*smoke.small_graph())


def test_what_needs_more_packages_says_what_to_install(monkeypatch):
    missing = Mock(side_effect=ModuleNotFoundError("No module named 'scipy'", name="scipy"))
    monkeypatch.setattr(dynagat, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r"compare needs scipy; .* 'dynagat\[suite\]'"):
        _ = dynagat.compare


def test_ops_state_their_schema():
    """torch 2.6, the oldest supported version, can't infer the type list[Tensor]."""
    texts = [path.read_text() for path in ROOT.glob("src/dynagat/**/*.py")]
    trees = [ast.parse(text) for text in texts if "custom_op" in text]
    calls = [node for tree in trees for node in ast.walk(tree) if is_custom_op(node)]
    assert len(calls) >= 3
    assert all("schema" in {keyword.arg for keyword in call.keywords} for call in calls)


def is_custom_op(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("custom_op")
