"""Syntax: the nodes and tokens of a Python file, and their edges Child and NextToken.

The first nodes are those of the syntax tree in pre-order, labelled with their class. Then come the
tokens in the order of the text, without comments and layout. A token is a child of the
innermost syntax node around it, as in Roslyn's trees.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
LAYOUT |= {tokenize.ENCODING, tokenize.ENDMARKER}
MAX_LABEL = 100  # characters of a token that its label keeps: enough for all but long strings
COLUMNS = 1 << 32  # a position is line * COLUMNS + column
# Before Python 3.12, an f-string is one token, and the positions inside it are not reliable.
LEAVES = () if sys.version_info >= (3, 12) else (ast.JoinedStr,)
WITHOUT_NODE = {
    each
    for kind in (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
    for each in kind.__subclasses__()
}


class ProgramError(ValueError):
    """A text that is not a Python program which can be read."""


class Token(NamedTuple):
    id: int  # of its node in the graph
    text: str
    line: int  # from 1
    column: int  # from 0, in characters


@dataclass(frozen=True, eq=False)
class Syntax:
    tree: ast.Module
    labels: list[str]  # of each node of the graph
    tokens: list[Token]
    child: list[tuple[int, int]]
    next_token: list[tuple[int, int]]
    node_ids: dict[ast.AST, int]
    starts: dict[int, Token]  # by position
    owned: dict[int, list[Token]]  # tokens by the syntax node around them

    def token_at(self, node: ast.AST) -> Token | None:
        """The token at the start of a syntax node; None inside f-strings before Python 3.12."""
        if node not in self.node_ids:
            return None
        return self.starts.get(_start(node))

    def name_in(self, node: ast.AST, name: str, after: str) -> Token | None:
        """The token `name` that follows the token `after` inside a syntax node."""
        tokens = self.owned.get(self.node_ids.get(node, -1), [])
        texts = [token.text for token in tokens]
        for place in range(1, len(texts)):
            if texts[place] == name and texts[place - 1] == after:
                return tokens[place]
        return None

    def end_of(self, node: ast.AST) -> int | None:
        """The node that stands for an expression: its token if it has only one, else itself."""
        number = self.node_ids.get(node)
        if isinstance(node, (ast.Name, ast.Constant)) and number is not None:
            tokens = self.owned.get(number, [])
            return tokens[0].id if len(tokens) == 1 else number
        return number


def read_syntax(source: str) -> Syntax:
    """The syntax of a program; ProgramError if it is not valid Python."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings, which are not ours
            tree = ast.parse(source)
        texts = list(_texts(source))
        nodes, edges = _nodes(tree)
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        raise ProgramError(f"it is not valid Python: {error}") from None
    except (RecursionError, MemoryError):
        raise ProgramError("it is nested too deeply") from None
    first = len(nodes)
    tokens = [Token(first + n, *text[1:]) for n, text in enumerate(texts)]
    starts = {position: token for (position, *_), token in zip(texts, tokens, strict=True)}
    owned: dict[int, list[Token]] = {}
    for owner, token in zip(_owners(nodes, [each[0] for each in texts]), tokens, strict=True):
        owned.setdefault(owner, []).append(token)
        edges.append((owner, token.id))
    labels = [type(node).__name__ for node in nodes] + [token.text[:MAX_LABEL] for token in tokens]
    ids = {node: number for number, node in enumerate(nodes)}
    pairs = [(token.id, token.id + 1) for token in tokens[:-1]]
    return Syntax(tree, labels, tokens, edges, pairs, ids, starts, owned)


def _texts(source: str) -> Iterator[tuple[int, str, int, int]]:
    """Position in bytes, as in the syntax tree; text, line and column in characters."""
    is_ascii = source.isascii()
    for kind, text, (line, column), _, content in tokenize.generate_tokens(
        io.StringIO(source).readline
    ):
        if kind in LAYOUT or not text:
            continue
        # `content` of a token that spans several lines starts with its first line
        place = column if is_ascii else len(content[:column].encode())
        yield line * COLUMNS + place, text, line, column


def _nodes(tree: ast.Module) -> tuple[list[ast.AST], list[tuple[int, int]]]:
    """The syntax nodes in pre-order, and their Child edges."""
    nodes: list[ast.AST] = []
    edges: list[tuple[int, int]] = []
    todo: list[tuple[ast.AST, int]] = [(tree, -1)]
    while todo:
        node, parent = todo.pop()
        number = len(nodes)
        nodes.append(node)
        if parent >= 0:
            edges.append((parent, number))
        if not isinstance(node, LEAVES):
            todo += [(each, number) for each in reversed(_inner(node))]
    return nodes, edges


def _inner(node: ast.AST) -> list[ast.AST]:
    """The children that are nodes of the graph: operators are tokens, no parameters are nothing."""
    inner = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            inner += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.arguments):
            inner += [value] if _inner(value) else []
        elif isinstance(value, ast.AST):
            inner.append(value)
    return [each for each in inner if type(each) not in WITHOUT_NODE]


def _owners(nodes: list[ast.AST], positions: list[int]) -> Iterator[int]:
    """For each token, given by its position, the innermost syntax node around it."""
    spans = [(_start(node), -_stop(node), n) for n, node in enumerate(nodes) if _is_placed(node)]
    spans.sort(reverse=True)  # the next one is the last of the list
    around = [(1 << 62, 0)]  # stops and numbers of the open nodes; the module is open to the end
    for position in positions:
        while spans and spans[-1][0] <= position:
            start, stop, number = spans.pop()
            while around[-1][0] <= start:
                around.pop()
            around.append((-stop, number))
        while around[-1][0] <= position:
            around.pop()
        yield around[-1][1]


def _is_placed(node: ast.AST) -> bool:
    return hasattr(node, "lineno")


def _start(node: ast.AST) -> int:
    return node.lineno * COLUMNS + node.col_offset  # type: ignore[attr-defined]


def _stop(node: ast.AST) -> int:
    return node.end_lineno * COLUMNS + node.end_col_offset  # type: ignore[attr-defined]
