"""DictionaryLookup: generator, network, benchmark, and what the report adds for it."""

from dynagat.benchmarks.dictionary_lookup.benchmark import DICTIONARY_LOOKUP

__all__ = ["DICTIONARY_LOOKUP"]
