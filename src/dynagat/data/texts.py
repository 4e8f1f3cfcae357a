"""Texts: many strings as two plain arrays, their bytes one after the other and where each ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

PARTS = ("utf8", "offsets")


@dataclass(frozen=True, eq=False)
class Texts(Sequence[str]):
    """Text n is the UTF-8 of utf8[offsets[n] : offsets[n + 1]]."""

    utf8: np.ndarray  # [bytes] uint8
    offsets: np.ndarray  # [count + 1] int64

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        coded = [text.encode("utf-8") for text in texts]
        offsets = np.zeros(len(coded) + 1, np.int64)
        np.cumsum([len(each) for each in coded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(coded), np.uint8), offsets)

    @classmethod
    def gathered(cls, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays, in which those of texts are texts again."""
        found = dict(arrays)
        for name in [each.removesuffix(".utf8") for each in arrays if each.endswith(".utf8")]:
            if f"{name}.offsets" not in arrays:
                continue  # an array that happens to be called so
            found[name] = cls(found.pop(f"{name}.utf8"), found.pop(f"{name}.offsets"))
        return found

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in PARTS}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        return bytes(self.utf8[self.offsets[at] : self.offsets[at + 1]]).decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[at] for at in range(len(self)))
