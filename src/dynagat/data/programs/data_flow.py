"""DataFlow: where a variable may have been used or written last, along all paths of a program.

LastUse(u) are the mentions m of u's variable such that a path leads from m to u without another
mention; LastWrite(u) the writes such that a path leads from them to u without another write or
`del`. In a loop, they may follow u in the text, or be u. LastLexicalUse(u) is the mention before u
in the text. They are searched for backwards from u; what reaches the start of a block is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from dynagat.data.programs.control_flow import Block, ControlFlow, Event, Kind
from dynagat.data.programs.evaluation import Use
from dynagat.data.programs.scopes import Variable
from dynagat.data.programs.syntax import ProgramError

MAX_STEPS = 3_000_000  # blocks visited for a program: a few seconds; usual files need thousands
MAX_SLOT_STEPS = 50_000_000  # and for all its slots: less than a minute; few files need a tenth
CANDIDATE = -1  # stands for the token of a variable that is put into a slot
WRITES = {Kind.WRITE, Kind.REWRITE}
Places = list[tuple[int, Event]]  # of one variable in one block
Edges = list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Placement:
    """The edges of a variable if it were used in a slot, where its token is CANDIDATE."""

    added: dict[str, Edges]
    removed: dict[str, Edges]  # those across the slot, which its use there replaces


@dataclass(eq=False)
class DataFlow:
    blocks: list[Block]
    places: dict[Block, dict[Variable, Places]] = field(default_factory=dict)
    kept: dict[tuple[Block, Variable, bool], frozenset[int]] = field(default_factory=dict)
    steps_left: int = MAX_STEPS

    @classmethod
    def of(cls, flow: ControlFlow) -> DataFlow:
        blocks = flow.without_dead_code()
        places: dict[Block, dict[Variable, Places]] = {}
        for block in blocks:
            inside = places[block] = {}
            for place, event in enumerate(block.events):
                inside.setdefault(event.variable, []).append((place, event))
        return cls(blocks, places)

    def edges(self) -> dict[str, Edges]:
        """The edges of the whole program; ProgramError if there are too many paths to follow."""
        edges: dict[str, Edges] = {"LastUse": [], "LastWrite": [], "LastLexicalUse": []}
        variables: dict[Variable, None] = {}
        for block in self.blocks:
            for variable, places in self.places[block].items():
                variables[variable] = None
                self._edges_inside(block, variable, places, edges)
        self.steps_left = MAX_SLOT_STEPS
        for variable in variables:
            edges["LastLexicalUse"] += [(u, m) for m, u in pairwise(variable.mentions)]
        return edges

    def _edges_inside(
        self, block: Block, variable: Variable, places: Places, edges: dict[str, Edges]
    ) -> None:
        uses: frozenset[int] | None = None
        writes: frozenset[int] | None = None
        for _, event in places:
            if event.token is not None and event.kind is not Kind.REWRITE:
                if uses is None:
                    uses = self.before_block(block, variable, False)
                if writes is None:
                    writes = self.before_block(block, variable, True)
                edges["LastUse"] += [(event.token, each) for each in sorted(uses)]
                edges["LastWrite"] += [(event.token, each) for each in sorted(writes)]
            if event.token is not None:
                uses = frozenset([event.token])
            if event.kind is not Kind.USE:
                writes = _written(event)

    def before_block(self, block: Block, variable: Variable, is_write: bool) -> frozenset[int]:
        """The last uses, or the last writes, that reach the start of a block."""
        key = block, variable, is_write
        if key not in self.kept:
            self.kept[key] = frozenset(self._search(block, variable, is_write))
        return self.kept[key]

    def after_block(self, block: Block, variable: Variable, is_write: bool) -> frozenset[int]:
        last = _last(self.places[block].get(variable, []), is_write)
        return self.before_block(block, variable, is_write) if last is None else last

    def before(self, use: Use, variable: Variable, is_write: bool) -> frozenset[int]:
        """The last uses, or the last writes, of a variable right before a place of use."""
        places = self.places[use.block].get(variable, [])
        inside = _last([each for each in places if each[0] < use.place], is_write)
        return self.before_block(use.block, variable, is_write) if inside is None else inside

    def _search(
        self, start: Block, variable: Variable, is_write: bool, slot: Use | None = None
    ) -> Iterator[int]:
        """Backwards from the start of a block; with a slot, the variable is also used there."""
        if start.code is variable.home:
            return
        seen, todo = set(start.before), list(start.before)
        while todo:
            block = todo.pop()
            self._step()
            places = self.places[block].get(variable)
            if slot is not None and block is slot.block:
                places = _with_slot(places or [], slot, variable)
            last = _last(places, is_write) if places else None
            if last is None and slot is None:
                last = self.kept.get((block, variable, is_write))
            if last is not None:
                yield from last
                continue
            if block.code is variable.home:
                continue  # it does not exist before
            if block.code is not None and slot is None:  # many functions share the code around
                for each in block.before:
                    yield from self.after_block(each, variable, is_write)
                continue
            new = [each for each in block.before if each not in seen]
            seen.update(new)
            todo += new

    def _step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise ProgramError("it has too many branches")

    def place(self, variable: Variable, slot: Use) -> Placement:
        """Use a variable in a slot, which has the token of another one."""
        around = _with_slot(self.places[slot.block].get(variable, []), slot, variable)
        before = _last([each for each in around if each[0] < slot.place], False)
        if before is None:
            before = frozenset(self._search(slot.block, variable, False, slot))
        writes = self.before(slot, variable, True)
        last_use = [(CANDIDATE, each) for each in sorted(before)]
        removed: Edges = []
        for token, block in self._next_uses(variable, slot):
            old = set(self.before_block(block, variable, False))
            new = set(self._search(block, variable, False, slot))
            if block is slot.block and self._is_after(token, variable, slot):
                old = set(self.before(slot, variable, False))
                new = {CANDIDATE}
            last_use += [(token, each) for each in sorted(new - old)]
            removed += [(token, each) for each in sorted(old - new)]
        lexical, replaced = _lexical(variable, slot.token.id)
        last_write = [(CANDIDATE, each) for each in sorted(writes)]
        return Placement(
            {"LastUse": last_use, "LastWrite": last_write, "LastLexicalUse": lexical},
            {"LastUse": removed, "LastLexicalUse": replaced},
        )

    def _next_uses(self, variable: Variable, slot: Use) -> Iterator[tuple[int, Block]]:
        """The mentions that may come right after the slot, with their blocks."""
        rest = [each for each in self.places[slot.block].get(variable, []) if each[0] > slot.place]
        first = _first(rest)
        if first is not None:
            yield from _edged(first, slot.block)
            return
        seen, todo = set(slot.block.after), list(slot.block.after)
        while todo:
            block = todo.pop()
            self._step()
            if block not in self.places:
                continue
            places = self.places[block].get(variable, [])
            if block is slot.block:
                places = [each for each in places if each[0] < slot.place]
            first = _first(places)
            if first is not None:
                yield from _edged(first, block)
            elif block is not slot.block:
                new = [each for each in block.after if each not in seen]
                seen.update(new)
                todo += new

    def _is_after(self, token: int, variable: Variable, slot: Use) -> bool:
        places = self.places[slot.block][variable]
        return any(event.token == token and place > slot.place for place, event in places)


def _lexical(variable: Variable, slot: int) -> tuple[Edges, Edges]:
    """The mentions around the slot: the edges with the slot, and the one that they replace."""
    tokens = variable.mentions
    place = bisect_left(tokens, slot)
    before, after = tokens[max(0, place - 1) : place], tokens[place : place + 1]
    edges = [(CANDIDATE, each) for each in before] + [(each, CANDIDATE) for each in after]
    return edges, [(each, other) for each in after for other in before]


def _with_slot(places: Places, slot: Use, variable: Variable) -> Places:
    added = slot.place, Event(variable, CANDIDATE, Kind.USE)
    return sorted([*places, added], key=lambda each: each[0])


def _first(places: Places) -> Event | None:
    return next((event for _, event in places if event.token is not None), None)


def _edged(event: Event, block: Block) -> Iterator[tuple[int, Block]]:
    """The second half of an augmented assignment has no edges of its own."""
    if event.token is not None and event.kind is not Kind.REWRITE:
        yield event.token, block


def _last(places: Places, is_write: bool) -> frozenset[int] | None:
    """What reaches the end of a block; None if what reaches its start does."""
    for _, event in reversed(places):
        if is_write and event.kind is not Kind.USE:
            return _written(event)
        if not is_write and event.token is not None:
            return frozenset([event.token])
    return None


def _written(event: Event) -> frozenset[int]:
    is_write = event.kind in WRITES and event.token is not None
    return frozenset([event.token]) if is_write else frozenset()  # type: ignore[list-item]
