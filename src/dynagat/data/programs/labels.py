"""Labels of nodes: as characters for a network, and the parts that identifiers consist of."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789,;.!?:'\"/\\|_@#$%^&*~`+-=<>()[]{}"
PADDING, UNKNOWN, FIRST = 0, 1, 2  # characters have the codes from 2 on
NUM_CODES = FIRST + len(ALPHABET)
LENGTH = 19  # characters of a label that count
CODES = {character: FIRST + place for place, character in enumerate(ALPHABET)}
CHARACTERS = " ¿" + ALPHABET  # by code
CACHED = 1 << 17  # labels

CSHARP = """abstract as base bool break byte case catch char checked class const continue decimal
default delegate do double else enum event explicit extern false finally fixed float for foreach
goto if implicit in int interface internal is lock long namespace new null object operator out
override params private protected public readonly ref return sbyte sealed short sizeof stackalloc
static string struct switch this throw true try typeof uint ulong unchecked unsafe ushort using
virtual void volatile while"""
KEYWORDS = {"csharp": frozenset(CSHARP.split()), "python": frozenset(keyword.kwlist)}  # by language

# An identifier is cut at underscores and white space, and between these characters.
MARK = "[@$.'\"]"
CUTS = (
    ("[a-z0-9]", "[A-Z]"),
    ("[A-Z0-9]", "[A-Z][a-z]"),
    ("[0-9]", "[a-zA-Z]"),
    ("[a-zA-Z]", "[0-9]"),
    (MARK, "[a-zA-Z0-9]"),
    ("[a-zA-Z0-9]", MARK),
)
CUT = re.compile("|".join([r"[_\s]+", *(f"(?<={before})(?={after})" for before, after in CUTS)]))
WORD = re.compile("[a-zA-Z0-9]")


@lru_cache(CACHED)
def split_label(label: str) -> tuple[str, ...]:
    """ "maxNodes_2" -> ("max", "nodes", "2"): distinct parts with a letter or digit, lower case"""
    parts = (part.lower() for part in CUT.split(label))
    return tuple(dict.fromkeys(part for part in parts if WORD.search(part)))


@lru_cache(CACHED)
def encode(label: str) -> bytes:
    """The codes of the first characters, in lower case, padded with zeros."""
    characters = label[:LENGTH].lower()[:LENGTH]  # the lower case of some is longer
    codes = bytes(CODES.get(each, UNKNOWN) for each in characters)
    return codes.ljust(LENGTH, bytes([PADDING]))


def encode_all(labels: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the distinct labels [L, LENGTH] uint8, and which one each label is [n]."""
    places: dict[bytes, int] = {}
    index = [places.setdefault(encode(label), len(places)) for label in labels]
    codes = np.frombuffer(b"".join(places), np.uint8).reshape(-1, LENGTH)
    return codes, np.array(index, np.int32)


def decode(codes: np.ndarray) -> str:
    """The text that codes stand for; ¿ for characters outside the alphabet."""
    return "".join(CHARACTERS[code] for code in codes).rstrip()
