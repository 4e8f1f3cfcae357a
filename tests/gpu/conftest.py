"""These tests need triton; those that run kernels need its interpreter too."""

import os

import pytest

collect_ignore = []
if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore += ["test_kernels.py", "test_programs.py"]
else:
    collect_ignore += ["test_compiled.py"]


@pytest.fixture
def short_segments(monkeypatch):
    """Rows are cut into segments of 16 edges, so that small graphs have hubs."""
    from dynagat.ops.triton import attention

    monkeypatch.setattr(attention, "CUT", 16)


@pytest.fixture
def forced(monkeypatch):
    from dynagat.ops import devices

    monkeypatch.setattr(devices, "forced", "triton")
