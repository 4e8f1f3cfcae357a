"""Shared by all tests: which marks need what, and warnings that are not ours."""

import os

import pytest
import torch

from dynagat.native import kernels


def pytest_collection_modifyitems(items):
    """`native` tests skip where nothing was compiled, but fail in CI, where that is a bug."""
    if kernels is not None or os.environ.get("CI"):
        return
    for item in items:
        if "native" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="the native module is not in use here"))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def threads():
    """Sets the number of threads; puts it back afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
