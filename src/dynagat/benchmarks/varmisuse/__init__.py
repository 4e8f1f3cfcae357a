"""VarMisuse: which variable belongs into a slot of a program."""

from dynagat.benchmarks.varmisuse.benchmark import VARMISUSE

__all__ = ["VARMISUSE"]
