"""Small versions of the trials in docs/reliability.md; tests/trials has the large ones."""

import os
import subprocess
import sys

import pytest

from tests.trials.full_disk import can_mount


def trial(name, *words):
    command = [sys.executable, "-m", f"tests.trials.{name}", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment)
    return done.stdout


def test_killed_imports_and_comparisons_lose_nothing():
    assert trial("kills", "--kills", "2").count("2 kills, nothing lost or left over") == 2


def test_every_flipped_byte_of_a_stored_graph_is_found():
    assert "all refused" in trial("flips", "--flips", "4")


def test_a_full_disk_ends_in_one_sentence_and_leaves_nothing_half_written():
    if not can_mount():
        pytest.skip("only root may mount a small file system")
    assert trial("full_disk", "--sizes", "1").count("1 disks, 1 too small") == 2
