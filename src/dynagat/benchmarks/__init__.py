"""The benchmarks of the paper, one declarative file each."""

from dynagat.benchmarks.dictionary_lookup import DICTIONARY_LOOKUP
from dynagat.experiment import Benchmark

BENCHMARKS: dict[str, Benchmark] = {each.name: each for each in (DICTIONARY_LOOKUP,)}


def find(name: str) -> Benchmark:
    """By its name, or a sentence with the names there are."""
    if name not in BENCHMARKS:
        raise ValueError(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]
