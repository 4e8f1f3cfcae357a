"""The benchmarks of the paper, one declarative file each; and the same on a graph of one's own."""

from dynagat.benchmarks.dictionary_lookup import DICTIONARY_LOOKUP
from dynagat.benchmarks.own_graph import OWN_GRAPH
from dynagat.experiment import Benchmark

BENCHMARKS: dict[str, Benchmark] = {each.name: each for each in (DICTIONARY_LOOKUP,)}


def find(name: str) -> Benchmark:
    """By its name, or a sentence with the names there are."""
    known = {**BENCHMARKS, OWN_GRAPH.name: OWN_GRAPH}
    if name not in known:
        raise ValueError(f"there is no benchmark {name!r}; there are {', '.join(known)}")
    return known[name]
