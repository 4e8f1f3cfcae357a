"""Commands of dynagat in forked processes, which start at once, and the small graph they use."""

import io
import os
import random
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import dynagat.comparison  # noqa: F401  (so that forked processes have it)
from dynagat.cli import app

QUICK = ["--set", "max_rounds=2", "--set", "dim=8", "--set", "heads=2", "--seeds", "0-1"]
QUICK += ["--mechanism", "gcn,gatv2"]


def write_tables(folder: Path, nodes: int = 2000) -> list[str]:
    """Two tables, and the options that name them."""
    draw = random.Random(0)
    rows = [f"n{n},{draw.random():.3f},{'xy'[n % 2]}\n" for n in range(nodes)]
    (folder / "n.csv").write_text("name,size,label\n" + "".join(rows))
    pairs = [f"n{draw.randrange(nodes)},n{draw.randrange(nodes)}\n" for _ in range(3 * nodes)]
    (folder / "e.csv").write_text("from,to\n" + "".join(pairs))
    return ["--edges", str(folder / "e.csv"), "--nodes", str(folder / "n.csv"), "--target", "label"]


def start(words: list[str], log: Path | None = None) -> int:
    """Start a command in a process group of its own; returns its process id."""
    process = os.fork()
    if process:
        return process
    os.setpgid(0, 0)
    code, text = 70, io.StringIO()
    try:
        with redirect_stdout(text), redirect_stderr(text):
            sys.argv = ["dynagat", *words]
            code = app(words, standalone_mode=False) or 0
    except BaseException as error:
        text.write(f"{type(error).__name__}: {error}\n")
    finally:
        if log is not None:
            log.write_text(text.getvalue())
        os._exit(code)


def end(process: int) -> int:
    """Wait for it: its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def finish(words: list[str]) -> float:
    """Run a command to its end; returns the seconds it took."""
    begin = time.monotonic()
    assert end(start(words)) == 0
    return time.monotonic() - begin


@dataclass
class Killer:
    """Kills a command at moments of the time that it takes when it is left alone."""

    words: list[str]
    seconds: float
    draw: random.Random = field(default_factory=lambda: random.Random(0))

    def __call__(self) -> bool:
        """Run the command; whether it was killed before its end."""
        begin, process = time.monotonic(), start(self.words)
        latest = begin + self.draw.uniform(0, self.seconds)
        while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > latest:
                os.kill(process, signal.SIGKILL)
                break
            time.sleep(0.002)
        code = end(process)
        assert code in (0, -signal.SIGKILL), f"{self.words} ended with {code}"
        if code == 0:
            self.seconds = min(self.seconds, time.monotonic() - begin)
        return code != 0
