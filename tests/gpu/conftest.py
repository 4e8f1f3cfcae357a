"""These tests need triton; those that run kernels need its interpreter too."""

import os

import pytest

collect_ignore = []
if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore += ["test_kernels.py", "test_programs.py"]
else:
    collect_ignore += ["test_compiled.py"]


@pytest.fixture(autouse=True, scope="session")
def boolean_masks():
    """The interpreter of Triton 3.9 refuses masks that combine a vector and a number: it has made
    integers of them."""
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    load, store = Builder.create_masked_load, Builder.create_masked_store

    def boolean(mask):
        mask.data = mask.data.astype(bool)
        return mask

    def masked_load(self, pointers, mask, *rest):
        return load(self, pointers, boolean(mask), *rest)

    def masked_store(self, pointers, value, mask, *rest):
        return store(self, pointers, value, boolean(mask), *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "create_masked_load", masked_load)
        patch.setattr(Builder, "create_masked_store", masked_store)
        yield


@pytest.fixture
def short_segments(monkeypatch):
    """Rows are cut into segments of 16 edges, so that small graphs have hubs."""
    from dynagat.ops.triton import attention

    monkeypatch.setattr(attention, "CUT", 16)


@pytest.fixture
def forced(monkeypatch):
    from dynagat.ops import devices

    monkeypatch.setattr(devices, "forced", "triton")
