"""What trained networks of a benchmark are good for: commands `dynagat BENCHMARK COMMAND`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynagat.benchmarks.varmisuse import VARMISUSE
from dynagat.benchmarks.varmisuse import commands as varmisuse

# Functions for typer, by the name of the benchmark and of the command.
OWN_COMMANDS: dict[str, Mapping[str, Callable[..., None]]] = {VARMISUSE.name: varmisuse.COMMANDS}
