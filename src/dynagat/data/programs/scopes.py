"""Scopes: which variable a name of a Python program means, by the rules of the language.

A variable is a name that is bound by assignments, parameters, loops, `with`, `except`, patterns or
comprehensions. Names bound by `import`, `def` or `class` are definitions: nobody confuses them with
a variable, so they are neither slots nor candidates.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPED = (*FUNCTIONS, ast.Lambda, ast.ClassDef, *COMPREHENSIONS)
NAMED = (*FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)  # bind a name


@dataclass(eq=False)
class Variable:
    name: str
    home: ast.AST  # the module, function or lambda in which it lives
    values: list[Any] = field(default_factory=list)  # what it is bound to, None where unknown
    annotations: list[ast.expr] = field(default_factory=list)
    definitions: list[ast.AST] = field(default_factory=list)  # by import, def or class
    mentions: list[int] = field(default_factory=list)  # its tokens, in the order of the text

    @property
    def is_variable(self) -> bool:
        return not self.definitions

    @property
    def definition(self) -> ast.AST | None:
        """The function or class that the name always means, if there is one."""
        is_only = len(self.definitions) == 1 and not self.values
        return self.definitions[0] if is_only else None


@dataclass(eq=False)
class Scope:
    node: ast.AST
    parent: Scope | None = None
    variables: dict[str, Variable] = field(default_factory=dict)  # bound here
    elsewhere: dict[str, Scope | None] = field(default_factory=dict)  # global and nonlocal names

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def code(self) -> ast.AST:
        """The module, function or lambda whose code this scope is part of."""
        is_part = self.is_class or isinstance(self.node, COMPREHENSIONS)
        return self.parent.code if is_part and self.parent else self.node

    @property
    def module(self) -> Scope:
        return self if self.parent is None else self.parent.module

    def bind(self, name: str) -> Variable:
        """The variable that a binding of this name in this scope means."""
        home = self.elsewhere.get(name) or self
        if name not in home.variables:
            home.variables[name] = Variable(name, home.code)
        return home.variables[name]

    def find(self, name: str) -> Variable | None:
        """The variable that a use of this name in this scope means; None for built-in names."""
        if name in self.elsewhere:
            home = self.elsewhere[name]
            return home.variables.get(name) if home else None
        return next((each[name] for each in self._around() if name in each), None)

    def binds_for_inner(self, name: str) -> bool:
        """Whether functions inside this one see a variable of this name, bound before or later."""
        if self.is_class or name in self.elsewhere:
            return False
        return name in self.variables or name in self._bound_names

    @cached_property
    def _bound_names(self) -> set[str]:
        return set(bound_names(self.node))

    def visible(self) -> Iterator[Variable]:
        """The variables in scope, the innermost first; those that others hide are left out."""
        seen: set[str] = set()
        for variables in self._around():
            yield from (variables[name] for name in variables if name not in seen)
            seen.update(variables)

    def _around(self) -> Iterator[dict[str, Variable]]:
        """The variables of this scope and of those around it; a class hides its own from others."""
        yield self.variables
        scope = self.parent
        while scope is not None:
            if not scope.is_class:
                yield scope.variables
            scope = scope.parent


def read_scopes(tree: ast.Module) -> dict[ast.AST, Scope]:
    """The scope of the module and of each function, class, lambda and comprehension."""
    scopes: dict[ast.AST, Scope] = {tree: Scope(tree)}
    collector = _Collector(scopes)
    for statement in tree.body:
        collector.visit(statement, scopes[tree])
    return scopes


@dataclass(eq=False)
class _Collector:
    scopes: dict[ast.AST, Scope]

    def visit(self, node: ast.AST, scope: Scope) -> None:
        VISITS.get(type(node), _Collector.children)(self, node, scope)

    def children(self, node: ast.AST, scope: Scope) -> None:
        for each in ast.iter_child_nodes(node):
            self.visit(each, scope)

    def inner(self, node: ast.AST, scope: Scope) -> Scope:
        self.scopes[node] = Scope(node, scope)
        return self.scopes[node]

    def function(self, node: Any, scope: Scope) -> None:
        inner = self.inner(node, scope)
        if not isinstance(node, ast.Lambda):
            scope.bind(node.name).definitions.append(node)
            for each in (*node.decorator_list, *filter(None, [node.returns])):
                self.visit(each, scope)
            self.type_parameters(node, inner)
        self.parameters(node.args, scope, inner)
        for each in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self.visit(each, inner)

    def parameters(self, arguments: ast.arguments, outer: Scope, inner: Scope) -> None:
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            self.visit(default, outer)
        defaults = defaults_of(arguments)
        for each in parameters_of(arguments):
            variable = inner.bind(each.arg)
            variable.values.append(defaults.get(each.arg))
            if isinstance(variable.values[-1], ast.Constant) and variable.values[-1].value is None:
                variable.values[-1] = None  # the caller may give anything
            if each is arguments.vararg:
                variable.values[-1] = ast.Tuple([])
            elif each is arguments.kwarg:
                variable.values[-1] = ast.Dict([], [])
            elif each.annotation is not None:
                variable.annotations.append(each.annotation)
            if each.annotation is not None:
                self.visit(each.annotation, outer)

    def type_parameters(self, node: ast.AST, scope: Scope) -> None:
        for each in getattr(node, "type_params", []):  # since Python 3.12
            scope.bind(each.name).definitions.append(each)
            self.children(each, scope)

    def class_body(self, node: ast.ClassDef, scope: Scope) -> None:
        scope.bind(node.name).definitions.append(node)
        for each in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(each, scope)
        inner = self.inner(node, scope)
        self.type_parameters(node, inner)
        for each in node.body:
            self.visit(each, inner)

    def comprehension(self, node: Any, scope: Scope) -> None:
        inner = self.inner(node, scope)
        for number, each in enumerate(node.generators):
            self.visit(each.iter, inner if number else scope)
            for part in (each.target, *each.ifs):
                self.visit(part, inner)
        for each in elements_of(node):
            self.visit(each, inner)

    def name(self, node: ast.Name, scope: Scope) -> None:
        if not isinstance(node.ctx, ast.Load):
            scope.bind(node.id).values.append(None)

    def assign(self, node: ast.Assign, scope: Scope) -> None:
        self.visit(node.value, scope)
        for target in node.targets:
            if isinstance(target, ast.Name):
                scope.bind(target.id).values.append(node.value)
            else:
                self.visit(target, scope)

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        """It keeps the type of a variable, so it adds no value."""
        self.visit(node.value, scope)
        if isinstance(node.target, ast.Name):
            scope.bind(node.target.id)
        else:
            self.visit(node.target, scope)

    def annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        self.visit(node.annotation, scope)
        if node.value is not None:
            self.visit(node.value, scope)
        if isinstance(node.target, ast.Name):
            variable = scope.bind(node.target.id)
            variable.annotations.append(node.annotation)
            variable.values.append(node.value)
        else:
            self.visit(node.target, scope)

    def walrus(self, node: ast.NamedExpr, scope: Scope) -> None:
        """It binds in the scope around comprehensions."""
        self.visit(node.value, scope)
        scope_around(scope).bind(node.target.id).values.append(node.value)

    def elsewhere(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        for name in node.names:
            if isinstance(node, ast.Global):
                home: Scope | None = scope.module
                scope.module.bind(name)
            else:
                home = scope.parent
                while home is not None and not home.binds_for_inner(name):
                    home = home.parent
                if home is not None:
                    home.bind(name)
            scope.elsewhere[name] = home

    def imports(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            scope.bind(name).definitions.append(node)

    def handler(self, node: ast.ExceptHandler, scope: Scope) -> None:
        if node.name:
            scope.bind(node.name).values.append(None)
        self.children(node, scope)

    def pattern(self, node: Any, scope: Scope) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name:
            scope.bind(name).values.append(None)
        self.children(node, scope)


VISITS: dict[type, Callable] = {
    **dict.fromkeys((*FUNCTIONS, ast.Lambda), _Collector.function),
    **dict.fromkeys(COMPREHENSIONS, _Collector.comprehension),
    **dict.fromkeys((ast.Global, ast.Nonlocal), _Collector.elsewhere),
    **dict.fromkeys((ast.Import, ast.ImportFrom), _Collector.imports),
    **dict.fromkeys((ast.MatchAs, ast.MatchStar, ast.MatchMapping), _Collector.pattern),
    ast.ClassDef: _Collector.class_body,
    ast.Name: _Collector.name,
    ast.Assign: _Collector.assign,
    ast.AugAssign: _Collector.augmented,
    ast.AnnAssign: _Collector.annotated,
    ast.NamedExpr: _Collector.walrus,
    ast.ExceptHandler: _Collector.handler,
}


def bound_names(function: Any) -> Iterator[str]:
    """The names that the statements of a function bind, not those of functions inside it."""
    waiting: list[ast.AST] = [*function.body] if isinstance(function, FUNCTIONS) else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, COMPREHENSIONS):
            walruses = (each for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
            yield from (each.target.id for each in walruses)
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, NAMED) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]
        if not isinstance(node, SCOPED):
            waiting += ast.iter_child_nodes(node)


def scope_around(scope: Scope) -> Scope:
    """The scope in which a walrus inside this scope binds."""
    while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
        scope = scope.parent
    return scope


def parameters_of(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters, in the order of the text."""
    variadic = [each for each in (arguments.vararg,) if each is not None]
    last = [each for each in (arguments.kwarg,) if each is not None]
    return [*arguments.posonlyargs, *arguments.args, *variadic, *arguments.kwonlyargs, *last]


def defaults_of(arguments: ast.arguments) -> dict[str, ast.expr | None]:
    """The default of each parameter that has one."""
    positional = [*arguments.posonlyargs, *arguments.args]
    named = positional[len(positional) - len(arguments.defaults) :]
    pairs = [*zip(named, arguments.defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)  # type: ignore[arg-type]
    return {parameter.arg: default for parameter, default in pairs}


def elements_of(comprehension: Any) -> list[ast.expr]:
    """What a comprehension computes for each element."""
    if isinstance(comprehension, ast.DictComp):
        return [comprehension.key, comprehension.value]
    return [comprehension.elt]
