"""Edge noise: the noise, the benchmark, and what the report adds for it."""

from dynagat.benchmarks.edge_noise.benchmark import EDGE_NOISE

__all__ = ["EDGE_NOISE"]
