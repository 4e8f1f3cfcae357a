"""formal_arguments: which parameter each argument of a call is for, where the file tells it.

A keyword argument names its parameter. For calls of functions and classes of the same file, and of
methods through `self`, positional arguments are matched to the parameters as Python does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from dynagat.data.programs.scopes import FUNCTIONS, Scope

Parameters = tuple[list[ast.arg], list[ast.arg]]  # positional and keyword-only ones
UNKNOWN: Parameters = ([], [])


def formal_arguments(
    call: ast.Call, scope: Scope, scopes: Mapping[ast.AST, Scope]
) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Pairs of an argument and of the syntax node that starts with the parameter's name."""
    positional, named = _parameters(call.func, scope, scopes)
    for argument, parameter in zip(call.args, positional, strict=False):
        if isinstance(argument, ast.Starred):
            break  # what follows can't be counted
        yield argument, parameter
    known = {each.arg: each for each in (*positional, *named)}
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.value, known.get(keyword.arg, keyword)


def _parameters(callee: ast.expr, scope: Scope, scopes: Mapping[ast.AST, Scope]) -> Parameters:
    """The parameters of a function of this file, without the one that a method call fills."""
    if isinstance(callee, ast.Name):
        variable = scope.find(callee.id)
        definition = variable.definition if variable else None
        if isinstance(definition, ast.ClassDef):
            return _method(scopes.get(definition), "__init__")
        return _listed(definition.args) if isinstance(definition, FUNCTIONS) else UNKNOWN
    if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Name):
        return _method(_class_of(callee.value.id, scope), callee.attr)
    return UNKNOWN


def _listed(arguments: ast.arguments, start: int = 0) -> Parameters:
    return [*arguments.posonlyargs, *arguments.args][start:], arguments.kwonlyargs


def _class_of(name: str, scope: Scope) -> Scope | None:
    """The class whose instance a name is, if it is the first parameter of a method."""
    while scope.parent is not None and name not in scope.variables:
        scope = scope.parent
    node, home = scope.node, scope.parent
    if not isinstance(node, FUNCTIONS) or home is None or not home.is_class:
        return None
    return home if name in [each.arg for each in _listed(node.args)[0][:1]] else None


def _method(home: Scope | None, name: str) -> Parameters:
    variable = home.variables.get(name) if home else None
    definition = variable.definition if variable else None
    if not isinstance(definition, FUNCTIONS):
        return UNKNOWN
    names = [each.id for each in definition.decorator_list if isinstance(each, ast.Name)]
    return _listed(definition.args, start=0 if "staticmethod" in names else 1)
