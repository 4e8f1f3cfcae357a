"""Texts: many strings as two plain arrays, the concatenated UTF-8 bytes and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

PARTS = ("utf8", "offsets")


@dataclass(frozen=True, eq=False)
class Texts(Sequence[str]):
    """Text n is utf8[offsets[n] : offsets[n + 1]]."""

    utf8: np.ndarray  # [bytes] uint8
    offsets: np.ndarray  # [count + 1] int64

    def __post_init__(self) -> None:
        is_bytes = self.utf8.ndim == 1 and self.utf8.dtype == np.uint8
        if not is_bytes or self.offsets.shape[1:] or self.offsets.dtype != np.int64:
            raise ValueError("texts must be bytes and their offsets")

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        encoded = [text.encode("utf-8") for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(each) for each in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @classmethod
    def gathered(cls, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Replace each pair of arrays NAME.utf8 and NAME.offsets by Texts of this name."""
        gathered = dict(arrays)
        for name in [each.removesuffix(".utf8") for each in arrays if each.endswith(".utf8")]:
            if f"{name}.offsets" not in arrays:
                continue  # an array that only happens to have this name
            gathered[name] = cls(gathered.pop(f"{name}.utf8"), gathered.pop(f"{name}.offsets"))
        return gathered

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in PARTS}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return bytes(self.utf8[self.offsets[index] : self.offsets[index + 1]]).decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))
