"""The edges of a small program, written as line:column of their ends (or the label of a node)."""

from dynagat.data.programs.layout import EDGE_TYPES
from dynagat.data.programs.python_graph import Program


def edges(source, kind):
    """'3:4>1:0 ...': from the token in line 3, column 4 to that in line 1, column 0."""
    program = Program.of(source)
    arrays, labels = program.arrays, program.syntax.labels
    names = {token.id: f"{token.line}:{token.column}" for token in program.syntax.tokens}
    chosen = arrays.kind == EDGE_TYPES.index(kind)
    pairs = zip(arrays.source[chosen].tolist(), arrays.target[chosen].tolist(), strict=True)
    return " ".join(">".join(names.get(end, labels[end]) for end in pair) for pair in pairs)
