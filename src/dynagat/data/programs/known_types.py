"""known_type: the built-in type of a variable, where annotations or literals tell it."""

from __future__ import annotations

import ast
from functools import lru_cache

from dynagat.data.programs.scopes import Variable

BUILT_IN = {"int", "float", "complex", "bool", "str", "bytes", "list", "tuple", "dict", "set"}
NUMBERS = {"int", "float", "complex"}  # one may stand for another
ALIASES = {"List": "list", "Tuple": "tuple", "Dict": "dict", "Set": "set"}  # of typing
DISPLAYS: dict[type, str] = {
    **dict.fromkeys((ast.List, ast.ListComp), "list"),
    **dict.fromkeys((ast.Dict, ast.DictComp), "dict"),
    **dict.fromkeys((ast.Set, ast.SetComp), "set"),
    ast.Tuple: "tuple",
    ast.JoinedStr: "str",
}


def known_type(variable: Variable) -> str | None:
    """Annotations count first; else all values must be literals of one type. None is no type."""
    if variable.annotations:
        types = {_annotated(each) for each in variable.annotations}
    else:
        values = [each for each in variable.values if not _is_none(each)]
        types = {_literal(each) for each in values}
    return types.pop() if len(types) == 1 else None


def may_replace(one: str | None, other: str | None) -> bool:
    """Whether a variable of one type may stand where one of the other is; None is unknown."""
    return one is None or other is None or one == other or {one, other} <= NUMBERS


def _annotated(node: ast.expr) -> str | None:
    """`str`, `"str"`, `str | None`, `Optional[str]` and `list[str]` tell a built-in type."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            name = ALIASES.get(name, name)
            return name if name in BUILT_IN else None
        case ast.Constant(value=str(text)):
            return _quoted(text)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right) if _is_none(left) or _is_none(right):
            return _annotated(right if _is_none(left) else left)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return _annotated(inner)
        case ast.Subscript(value=outer):
            return _annotated(outer)
    return None


@lru_cache(4096)
def _quoted(text: str) -> str | None:
    """The type that an annotation in quotes tells; None if it can't be parsed."""
    try:
        return _annotated(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _literal(node: ast.expr | None) -> str | None:
    match node:
        case ast.Constant(value=value) if type(value).__name__ in BUILT_IN:
            return type(value).__name__
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _literal(operand)
    return DISPLAYS.get(type(node))


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
