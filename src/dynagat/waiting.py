"""How idle threads wait in the command `dynagat`: asleep. Imported before torch, which reads it.

By default the threads of OpenMP wait for work in a busy loop, for some milliseconds. That saves
microseconds on a quiet machine, but on a busy one it takes the cores from other processes.
"""

import os
import sys
from pathlib import PurePath


def is_command(argv: list[str], orig_argv: list[str]) -> bool:
    """Whether Python runs the script `dynagat` or `python -m dynagat`, and not a user's program."""
    if argv[0] == "-m":  # until Python has found the module to run
        return "dynagat" in orig_argv
    return PurePath(argv[0]).stem == "dynagat"


if is_command(sys.argv or [""], sys.orig_argv):
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # worker processes inherit it
