"""The API reference is complete: every public name has an entry, and every entry exists."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ["dynagat", "dynagat.nn", "dynagat.data", "dynagat.sampling", "dynagat.experiment"]
PACKAGES += ["dynagat.comparison", "dynagat.planning"]
PUBLIC = [f"{name}.{each}" for name in PACKAGES for each in importlib.import_module(name).__all__]
ENTRY = re.compile(r"^::: (\S+)(?:\n    options: .*\bheading: ([\w.]+))?", re.MULTILINE)
API = sorted((ROOT / "docs/api").glob("*.md"))
# Path of each entry, and the name under which the page shows it.
ENTRIES = [(path, name or path) for page in API for path, name in ENTRY.findall(page.read_text())]


def find(path):
    """The module, class or function with a dotted path."""
    home, _, name = path.rpartition(".")
    return getattr(importlib.import_module(home), name)


@pytest.mark.parametrize(("path", "name"), ENTRIES)
def test_each_entry_of_the_api_reference_exists(path, name):
    assert find(path).__doc__, f"{path} has no docstring"
    assert name == path or name in PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_has_one_entry_in_the_api_reference(name):
    """Some objects have two public names, such as dynagat.nn.GATConv: one entry is enough."""
    entries = [path for path, shown in ENTRIES if shown == name or find(path) is find(name)]
    assert len(entries) == 1, f"docs/api must have one entry `::: {name}`, but has {entries}"


def test_each_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f" {page.relative_to(ROOT / 'docs').as_posix()}\n" in navigation
