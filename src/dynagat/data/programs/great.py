"""import_great: functions of the GREAT data set (Hellendoorn et al., 2020) in the VarMisuse layout.

A function is a list of tokens with typed edges between them. Functions with a misused variable have
their slot there; the others at a random use of a variable. The edges become ours so:

| GREAT | here |
|---|---|
| FIELD, SYNTAX | Child |
| NEXT_SYNTAX | NextToken |
| LAST_READ | LastUse |
| LAST_WRITE, LAST_LEXICAL_USE, COMPUTED_FROM | LastWrite, LastLexicalUse, ComputedFrom |
| RETURNS_TO, FORMAL_ARG_NAME | ReturnsTo, FormalArgName |
| CFG_NEXT, CALLS | left out: the layout has none like them |

The file does not tell what the data flow of another variable in the slot would be, so the
candidates' LastUse and LastWrite follow the order of the text, for all candidates alike.
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynagat.data.programs.context import GraphArrays
from dynagat.data.programs.cutting import Wiring, cut_record
from dynagat.data.programs.importing import Report, Task, Yield, write_programs
from dynagat.data.programs.layout import MAX_CANDIDATES, pack
from dynagat.data.programs.sources import Source, parts_of
from dynagat.data.store import check_name, store_folder

NAMES = {"FIELD": "Child", "SYNTAX": "Child", "NEXT_SYNTAX": "NextToken", "LAST_READ": "LastUse"}
NAMES |= {"LAST_WRITE": "LastWrite", "LAST_LEXICAL_USE": "LastLexicalUse"}
NAMES |= {"COMPUTED_FROM": "ComputedFrom", "RETURNS_TO": "ReturnsTo"}
NAMES |= {"FORMAL_ARG_NAME": "FormalArgName"}
FUNCTIONS = 100  # read at a time
Edges = dict[str, set[tuple[int, int]]]


class GreatError(ValueError):
    """A function that can't become a record."""


@dataclass(frozen=True, eq=False)
class Function:
    tokens: Sequence[str]
    edges: Edges
    mentions: Mapping[str, Sequence[int]]  # tokens of each variable, in order

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Function:
        tokens, edges = record["source_tokens"], {name: set() for name in NAMES.values()}
        if not all(isinstance(each, str) for each in tokens):
            raise GreatError("with a token that is no text")
        for edge in record["edges"]:
            if not isinstance(edge, list) or len(edge) != 4:
                raise GreatError("with an edge that is no list of four entries")
            source, target, _, kind = edge
            _check(tokens, [source, target], "an edge to a token")
            name = NAMES.get(kind.removeprefix("enum_"))
            if name is not None:
                edges[name].add((source, target))
        places = sorted(each for each in record["repair_candidates"] if isinstance(each, int))
        _check(tokens, places, "a repair candidate")
        mentions: dict[str, list[int]] = {}
        for each in places:
            if tokens[max(0, each - 1)] != ".":  # attributes are no variables
                mentions.setdefault(tokens[each].lstrip("*"), []).append(each)
        return cls(tokens, edges, mentions)

    @property
    def writes(self) -> set[int]:
        """Tokens that write a variable: others were written last there, or are computed there."""
        written = {target for _, target in self.edges["LastWrite"]}
        return written | {source for source, _ in self.edges["ComputedFrom"]}

    def reads(self) -> list[int]:
        """Tokens of variables that come after another mention and are no writes."""
        later = [token for tokens in self.mentions.values() for token in tokens[1:]]
        return sorted(set(later) - self.writes)


def _check(tokens: Sequence[str], places: Sequence[Any], name: str) -> None:
    """A GreatError if one of the places is not that of a token."""
    if not all(isinstance(each, int) and 0 <= each < len(tokens) for each in places):
        raise GreatError(f"with {name} that is not there")


def import_great(
    file: Path | str,
    name: str,
    *,
    folder: Path | str | None = None,
    seed: int = 0,
    replace: bool = False,
    tell: Callable[[int, int], None] = lambda files, graphs: None,
) -> Report:
    """Turn a file of GREAT's functions into program graphs and store them.

    Args:
        file: a JSON object per line, possibly compressed (.gz).
        name: of the programs in the graph store.
        folder: where to write them instead of the graph store.
        seed: of the choice of slots, the split by project and the order.
        replace: whether to replace stored programs of this name.
        tell: called with the number of functions that were read and of graphs.
    """
    file = Path(file)
    place = Path(folder) if folder is not None else store_folder() / check_name(name)
    sources = sorted({_source(record) for record in _records(file)}, key=lambda s: s.name)
    parts = parts_of(sources, seed, ())
    return write_programs(
        place,
        _tasks(file, parts, seed),
        _read,
        about={
            "name": place.name,
            "language": "python",
            "source": f"functions of {file.name} (GREAT)",
            "settings": {"seed": seed},
        },
        seed=seed,
        replace=replace,
        tell=tell,
    )


def _records(file: Path) -> Iterator[dict[str, Any]]:
    open_text = gzip.open if file.suffix == ".gz" else open
    number = 0
    try:
        with open_text(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                number += 1
                record = json.loads(line)
                if not isinstance(record, dict) or not isinstance(record.get("edges"), list):
                    raise ValueError("it is no function of the GREAT data set")
                yield record
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file} was cut short or altered after line {number}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {max(1, number)} of {file} can't be read: {error}") from None


def _source(record: Mapping[str, Any]) -> Source:
    """The file of a function; the project is its first two folders, the owner and repository."""
    try:
        path = record["provenances"][0]["datasetProvenance"]["filepath"]
        return Source("/".join(path.split("/")[:2]), path, Path())
    except (LookupError, TypeError, AttributeError):
        return Source("unknown/unknown", "unknown/unknown", Path())


def _tasks(file: Path, parts: Mapping[Source, str], seed: int) -> Iterator[Task]:
    waiting: dict[str, list[Any]] = {}
    for number, record in enumerate(_records(file)):
        source = _source(record)
        batch = waiting.setdefault(parts[source], [])
        batch.append((record, source, f"{seed} {number}"))
        if len(batch) == FUNCTIONS:
            yield Task(parts[source], waiting.pop(parts[source]))
    for part, batch in waiting.items():
        yield Task(part, batch)


def _read(batch: list[tuple[dict[str, Any], Source, str]]) -> list[Yield]:
    results = []
    for record, source, seed in batch:
        try:
            made = great_record(record, source.name, seed)
            results.append(Yield(source.project, source.name, (pack(made),)))
        except GreatError as error:
            results.append(Yield(source.project, source.name, skipped=str(error)))
        except (LookupError, TypeError, AttributeError):
            results.append(Yield(source.project, source.name, skipped="not a GREAT record"))
    return results


def great_record(record: Mapping[str, Any], filename: str, seed: str) -> dict[str, Any]:
    """The record of a function; GreatError if there is no slot with a correct candidate."""
    function = Function.of(record)
    slot, correct = _slot(record, function, seed)
    mentions = {
        name: [each for each in tokens if each != slot]
        for name, tokens in function.mentions.items()
    }
    names = sorted((name for name in mentions if _before(mentions[name], slot)), key=lambda name: (
        slot - _before(mentions[name], slot)[-1]
    ))[:MAX_CANDIDATES]  # fmt: skip
    if correct not in names or len(names) < 2:
        raise GreatError("without a correct candidate among the five nearest")
    edges = _without_slot(function.edges, slot)
    added: list[tuple[str, int, int]] = []
    for number, name in enumerate(names):
        node = len(function.tokens) + number
        added += _place(edges, mentions[name], function.writes, slot, node)
    lists = {kind: sorted(pairs) for kind, pairs in edges.items()}
    arrays = GraphArrays.of(len(function.tokens), lists)
    wiring = Wiring(slot, names, [None] * len(names), names.index(correct), added)
    cut = cut_record(arrays, function.tokens, {}, wiring)
    return {"filename": filename, "slotTokenIdx": slot, **cut}


def _slot(record: Mapping[str, Any], function: Function, seed: str) -> tuple[int, str]:
    """The token of the slot, and the name of the variable that belongs there."""
    if record["has_bug"]:
        targets = [each for each in record["repair_targets"] if isinstance(each, int)]
        if not targets:
            raise GreatError("without a correct candidate")
        _check(function.tokens, targets, "a repair target")
        _check(function.tokens, [record["error_location"]], "an error_location")
        return record["error_location"], function.tokens[targets[0]].lstrip("*")
    reads = function.reads()
    if not reads:
        raise GreatError("without a use of a variable")
    slot = random.Random(seed).choice(reads)
    return slot, function.tokens[slot]


def _before(tokens: Sequence[int], slot: int) -> Sequence[int]:
    return tokens[: bisect_left(tokens, slot)]


def _without_slot(edges: Edges, slot: int) -> Edges:
    """The use in the slot is left out: what came after it now comes after what was before it."""
    rest = dict(edges)
    for kind in ("LastUse", "LastLexicalUse", "LastWrite"):
        before = {target for source, target in edges[kind] if source == slot} - {slot}
        after = {source for source, target in edges[kind] if target == slot} - {slot}
        rest[kind] = {pair for pair in edges[kind] if slot not in pair}
        if kind != "LastWrite":
            rest[kind] |= {(source, target) for source in after for target in before}
    return rest


def _place(
    edges: Edges, mentions: Sequence[int], writes: set[int], slot: int, node: int
) -> list[tuple[str, int, int]]:
    """The edges of a candidate by the order of the text; the edges that it interrupts go."""
    before, after = _before(mentions, slot), mentions[bisect_left(mentions, slot) :][:1]
    written = [each for each in before if each in writes] or before[:1]
    added = [("LastWrite", node, written[-1])]
    for kind in ("LastUse", "LastLexicalUse"):
        added += [(kind, node, before[-1]), *((kind, each, node) for each in after)]
        edges[kind] -= {(each, before[-1]) for each in after}
    return added
