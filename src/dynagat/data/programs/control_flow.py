"""ControlFlow: the uses and writes of variables in the order in which a program may run them.

A program is a graph of blocks; each block is a list of events that happen one after the other.
Branches, loops, `match`, short circuits and comprehensions are paths through it. Further rules:

- The body of a function starts where the code around its definition ends, since it is called
  later; the body of a lambda starts where the lambda is. Neither has an effect on what follows.
- An exception may leave the body of a `try` before or after each of its statements. Paths into
  `finally` share one copy of it, and go on to everywhere that one of them was going.
- `with` passes exceptions on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from dynagat.data.programs.scopes import Variable


class Kind(Enum):
    USE = "use"
    WRITE = "write"
    REWRITE = "rewrite"  # second half of an augmented assignment, whose first half is a use
    UNBIND = "unbind"  # by `del`, or at the end of an `except` clause (without a token)


class Event(NamedTuple):
    variable: Variable
    token: int | None
    kind: Kind


@dataclass(eq=False)
class Block:
    events: list[Event] = field(default_factory=list)
    before: list[Block] = field(default_factory=list)  # blocks that may run right before this one
    after: list[Block] = field(default_factory=list)
    code: ast.AST | None = None  # the function or lambda that starts with this block

    def goes_to(self, other: Block) -> None:
        if other not in self.after:
            self.after.append(other)
            other.before.append(self)


@dataclass(eq=False)
class Loop:
    """What `break` and `continue` need to know about the loop around them."""

    head: Block
    end: Block


@dataclass(eq=False)
class Finally:
    """A `finally` that jumps have to pass; `jumps` are those that did."""

    entry: Block
    jumps: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Body:
    """Code that runs as a whole: the module, a function or a lambda."""

    entry: Block
    end: Block = field(default_factory=Block)
    around: list[Loop | Finally] = field(default_factory=list)  # innermost last
    raises: list[Block] = field(default_factory=list)  # where exceptions go, innermost last


@dataclass(eq=False)
class ControlFlow:
    """Builds the graph along the program: events go to the block that runs `now`."""

    now: Block = field(default_factory=Block)
    body: Body = field(init=False)
    blocks: list[Block] = field(init=False)

    def __post_init__(self) -> None:
        self.body, self.blocks = Body(self.now), [self.now]

    def event(self, event: Event) -> None:
        self.now.events.append(event)

    def start(self, *before: Block) -> Block:
        """A new block after the given ones, which runs now."""
        return self.enter(Block(), *before)

    def enter(self, block: Block, *before: Block) -> Block:
        for each in before:
            each.goes_to(block)
        self.now = block
        self.blocks.append(block)
        if self.body.raises:
            block.goes_to(self.body.raises[-1])
        return block

    def step(self) -> None:
        """Between two statements: an exception may come here."""
        if self.body.raises:
            self.start(self.now)

    def jump(self, kind: str) -> None:
        """break, continue, return or raise: nothing runs after it."""
        self.leave(kind, self.body.around)
        self.start()

    def leave(self, kind: str, around: list[Loop | Finally]) -> None:
        if kind == "raise":
            if self.body.raises:
                self.now.goes_to(self.body.raises[-1])
            return
        for each in reversed(around):
            if isinstance(each, Finally):
                each.jumps.append(kind)
                return self.now.goes_to(each.entry)
            if kind != "return":
                return self.now.goes_to(each.end if kind == "break" else each.head)
        return self.now.goes_to(self.body.end)

    @contextmanager
    def loop(self, head: Block, end: Block) -> Iterator[None]:
        self.body.around.append(Loop(head, end))
        yield
        self.body.around.pop()

    @contextmanager
    def caught_by(self, dispatch: Block) -> Iterator[None]:
        """Exceptions of the code inside go to `dispatch`."""
        self.now.goes_to(dispatch)
        self.body.raises.append(dispatch)
        yield
        self.body.raises.pop()

    @contextmanager
    def cleanup(self) -> Iterator[Finally]:
        """Jumps and exceptions of the code inside go through the Finally."""
        cleanup = Finally(Block())
        self.body.around.append(cleanup)
        with self.caught_by(cleanup.entry):
            yield cleanup
        self.body.around.pop()

    def finish(self, cleanup: Finally, is_normal: bool) -> None:
        """At the end of a `finally`: on to where each path was going."""
        for kind in ("raise", *dict.fromkeys(cleanup.jumps)):
            self.leave(kind, self.body.around)
        self.start(*[self.now] if is_normal else [])

    @contextmanager
    def separate(self, code: ast.AST, before: Block) -> Iterator[Body]:
        """Code that runs by itself after a block, without an effect on what follows."""
        outer, now = self.body, self.now
        entry = Block(code=code)
        self.body = Body(entry)
        self.enter(entry, before)
        yield self.body
        self.body, self.now = outer, now

    def reached(self) -> set[Block]:
        """The blocks to which a path leads from the start of the program."""
        seen, todo = {self.blocks[0]}, [self.blocks[0]]
        while todo:
            new = [each for each in todo.pop().after if each not in seen]
            seen.update(new)
            todo += new
        return seen

    def is_reached(self, block: Block) -> bool:
        """Whether a path leads to this block from the start of the code that it is part of."""
        seen, todo = {block}, [block]
        while todo:
            each = todo.pop()
            if each is self.body.entry:
                return True
            new = [other for other in each.before if other not in seen]
            seen.update(new)
            todo += new
        return False

    def without_dead_code(self) -> list[Block]:
        """The blocks that may run; the others no longer lead to them."""
        reached = self.reached()
        blocks = [each for each in self.blocks if each in reached]
        for block in blocks:
            block.before = [each for each in block.before if each in reached]
        return blocks
