"""Evaluation: walks through a program in the order in which Python evaluates it.

It emits the uses and writes of variables (control_flow.py) and the edges that follow from them:

ComputedFrom: from a variable that is assigned to the variables in the expression.
GuardedBy, GuardedByNegation: from a variable inside a branch to the condition of the branch.
ReturnsTo: from a returned expression to the name of the function.
FormalArgName: from an argument to the name of the parameter (calls.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from dynagat.data.programs.calls import formal_arguments
from dynagat.data.programs.control_flow import Block, Body, ControlFlow, Event, Kind
from dynagat.data.programs.scopes import (
    COMPREHENSIONS,
    FUNCTIONS,
    Scope,
    Variable,
    elements_of,
    parameters_of,
    scope_around,
)
from dynagat.data.programs.syntax import WITHOUT_NODE, Syntax, Token

MAX_GUARDS = 8  # the innermost conditions; a long chain of `elif` would give edges without end


@dataclass(eq=False)
class Use:
    """A place where a variable is read: what a slot can be made of."""

    variable: Variable
    token: Token
    scope: Scope
    block: Block
    place: int  # of its event in the block


@dataclass(eq=False)
class Evaluation:
    syntax: Syntax
    scopes: dict[ast.AST, Scope]
    flow: ControlFlow = field(default_factory=ControlFlow)
    edges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    scope: Scope = field(init=False)
    guards: list[tuple[str, int]] = field(default_factory=list)  # innermost last
    read: list[int] = field(default_factory=list)  # tokens of variables, as they are read
    functions: list[Any] = field(default_factory=list)  # whose bodies run later, with their place
    result: int | None = None  # what ReturnsTo leads to
    subject: list[int] = field(default_factory=list)  # tokens read by the subject of `match`

    def run(self) -> None:
        self.scope = self.scopes[self.syntax.tree]
        self.body(self.flow.body, self.syntax.tree.body)
        for scope in self.scopes.values():
            for variable in scope.variables.values():
                variable.mentions = sorted(set(variable.mentions))  # bodies of functions ran last

    # bodies

    def body(self, body: Body, statements: list[ast.stmt]) -> None:
        """Code that runs as a whole, then the functions inside it."""
        outer, self.functions = self.functions, []
        self.statements(statements)
        self.flow.enter(body.end, self.flow.now)
        has_end = self.flow.is_reached(body.end)
        for node, scope, place in self.functions:
            self.function_body(node, scope, body.end if has_end else place)
        self.functions = outer

    def function_body(self, node: Any, scope: Scope, before: Block) -> None:
        name = self.syntax.name_in(node, node.name, "def")
        with self.inside(scope), self.flow.separate(node, before) as body:
            self.result = name.id if name else None
            self.parameters(node.args)
            self.body(body, node.body)

    @contextmanager
    def inside(self, scope: Scope) -> Iterator[None]:
        """A scope with its own returns and conditions."""
        kept = self.scope, self.guards, self.result
        self.scope, self.guards, self.result = scope, [], None
        yield
        self.scope, self.guards, self.result = kept

    def parameters(self, arguments: ast.arguments) -> None:
        for each in parameters_of(arguments):
            self.write(each.arg, self.syntax.token_at(each))

    def statements(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.flow.step()
            self.visit(statement)
        self.flow.step()

    def visit(self, node: ast.AST | None) -> None:
        if node is not None:
            EVALUATED.get(type(node), Evaluation.children)(self, node)

    def children(self, node: ast.AST) -> None:
        self.all(ast.iter_child_nodes(node))

    def all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            self.visit(node)

    # variables

    def event(self, name: str, token: Token | None, kind: Kind) -> None:
        variable = self.scope.find(name)
        if variable is None or not variable.is_variable:
            return
        self.flow.event(Event(variable, token.id if token else None, kind))
        if token is not None and kind is not Kind.REWRITE:
            variable.mentions.append(token.id)
            for relation, guard in self.guards[-MAX_GUARDS:]:
                self.edge(relation, token.id, guard)

    def use(self, name: str, token: Token | None) -> None:
        """Inside f-strings before Python 3.12, there are no tokens."""
        variable = self.scope.find(name)
        if token is not None and variable is not None and variable.is_variable:
            place = len(self.flow.now.events)
            self.uses.append(Use(variable, token, self.scope, self.flow.now, place))
            self.read.append(token.id)
            self.event(name, token, Kind.USE)

    def write(self, name: str, token: Token | None) -> None:
        if token is not None:
            self.event(name, token, Kind.WRITE)

    def name(self, node: ast.Name) -> None:
        token = self.syntax.token_at(node)
        if isinstance(node.ctx, ast.Load):
            self.use(node.id, token)
        elif token is not None:
            is_store = isinstance(node.ctx, ast.Store)
            self.event(node.id, token, Kind.WRITE if is_store else Kind.UNBIND)

    def edge(self, relation: str, source: int, target: int) -> None:
        self.edges.setdefault(relation, []).append((source, target))

    # assignments

    def computed(self, targets: Iterable[ast.AST | None], since: int) -> None:
        """Write targets; they are computed from the variables that were read since then."""
        read = self.read[since:]
        for target in filter(None, targets):
            self.visit(target)
            for name in _written(target):
                token = self.syntax.token_at(name)
                for each in read if token else []:
                    self.edge("ComputedFrom", token.id, each)  # type: ignore[union-attr]

    def assign(self, node: ast.Assign) -> None:
        since = len(self.read)
        self.visit(node.value)
        self.computed(node.targets, since)

    def annotation(self, node: ast.expr | None) -> None:
        """Its variables stand for types; nobody confuses them with others, so they are no slots."""
        uses = len(self.uses)
        self.visit(node)
        del self.uses[uses:]

    def annotated(self, node: ast.AnnAssign) -> None:
        """Without a value, it only declares the variable."""
        self.annotation(node.annotation)
        since = len(self.read)
        self.visit(node.value)
        if node.value is not None:
            self.computed([node.target], since)
        elif not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def augmented(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            return self.all([node.target, node.value])
        token, name = self.syntax.token_at(node.target), node.target.id
        if token is None:
            return self.visit(node.value)
        self.event(name, token, Kind.USE)
        since = len(self.read)
        self.visit(node.value)
        for each in self.read[since:]:
            self.edge("ComputedFrom", token.id, each)
        self.event(name, token, Kind.REWRITE)

    def walrus(self, node: ast.NamedExpr) -> None:
        since = len(self.read)
        self.visit(node.value)
        scope, self.scope = self.scope, scope_around(self.scope)
        self.computed([node.target], since)
        self.scope = scope

    # branches and loops

    @contextmanager
    def guarded(self, relation: str, test: ast.AST) -> Iterator[None]:
        guard = self.syntax.end_of(test)
        if guard is None:
            yield
            return
        self.guards.append((relation, guard))
        yield
        self.guards.pop()

    def branch(self, node: Any) -> None:
        """if and else, as a statement or an expression."""
        flow = self.flow
        self.visit(node.test)
        before, end = flow.now, Block()
        for relation, part in (("GuardedBy", node.body), ("GuardedByNegation", node.orelse)):
            flow.start(before)
            with self.guarded(relation, node.test):
                self.visit(part) if isinstance(part, ast.AST) else self.statements(part)
            flow.now.goes_to(end)
        flow.enter(end)

    def while_loop(self, node: ast.While) -> None:
        flow = self.flow
        head, end = flow.start(flow.now), Block()
        self.visit(node.test)
        tested = flow.now
        flow.start(tested)
        with flow.loop(head, end), self.guarded("GuardedBy", node.test):
            self.statements(node.body)
        flow.now.goes_to(head)
        is_endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        flow.start(*[] if is_endless else [tested])
        with self.guarded("GuardedByNegation", node.test):
            self.statements(node.orelse)
        flow.enter(end, flow.now)

    def for_loop(self, node: Any) -> None:
        flow = self.flow
        since = len(self.read)
        self.visit(node.iter)
        head, end = flow.start(flow.now), Block()
        flow.start(head)
        self.computed([node.target], since)
        with flow.loop(head, end):
            self.statements(node.body)
        flow.now.goes_to(head)
        flow.start(head)
        self.statements(node.orelse)
        flow.enter(end, flow.now)

    def short_circuit(self, first: Iterable[ast.expr], rest: Iterable[ast.expr]) -> None:
        """The first are always evaluated; each of the rest only if those before allow it."""
        self.all(first)
        end = Block()
        for each in rest:
            self.flow.now.goes_to(end)
            self.flow.start(self.flow.now)
            self.visit(each)
        self.flow.enter(end, self.flow.now)

    def boolean(self, node: ast.BoolOp) -> None:
        self.short_circuit(node.values[:1], node.values[1:])

    def comparison(self, node: ast.Compare) -> None:
        if len(node.comparators) == 1:  # the usual case needs no further blocks
            return self.all([node.left, *node.comparators])
        self.short_circuit([node.left, node.comparators[0]], node.comparators[1:])

    def comprehension(self, node: Any) -> None:
        """for ... if ... for ... if ...: element, with variables of its own."""
        outer, self.scope = self.scope, self.scopes[node]
        end, guards = Block(), len(self.guards)
        back = end
        for number, each in enumerate(node.generators):
            since = len(self.read)
            with nullcontext() if number else self.evaluated_in(outer):
                self.visit(each.iter)
            head = self.flow.start(self.flow.now)
            head.goes_to(back)
            self.flow.start(head)
            self.computed([each.target], since)
            back = head
            for test in each.ifs:
                self.visit(test)
                self.flow.now.goes_to(back)
                self.flow.start(self.flow.now)
                guard = self.syntax.end_of(test)
                self.guards += [("GuardedBy", guard)] if guard is not None else []
        self.all(elements_of(node))
        self.flow.now.goes_to(back)
        del self.guards[guards:]
        self.scope = outer
        self.flow.enter(end)

    @contextmanager
    def evaluated_in(self, scope: Scope) -> Iterator[None]:
        kept, self.scope = self.scope, scope
        yield
        self.scope = kept

    def match(self, node: ast.Match) -> None:
        flow, end = self.flow, Block()
        since = len(self.read)
        self.visit(node.subject)
        subject = self.read[since:]
        for case in node.cases:
            before, self.subject = flow.now, subject
            flow.start(before)
            self.visit(case.pattern)
            failed = [before]
            if case.guard is not None:
                self.visit(case.guard)
                failed.append(flow.now)
                flow.start(flow.now)
            elif _matches_all(case.pattern):
                failed = []
            with self.guarded("GuardedBy", case.guard) if case.guard else nullcontext():
                self.statements(case.body)
            flow.now.goes_to(end)
            flow.start(*failed)
        flow.enter(end, flow.now)

    def pattern(self, node: Any) -> None:
        """Captures are written when the pattern inside has matched."""
        self.children(node)
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        before = {ast.MatchStar: "*", ast.MatchMapping: "**"}.get(type(node), "as")
        if not name:
            return
        token = self.syntax.name_in(node, name, before) or self.syntax.token_at(node)
        if token is None or token.text != name:
            return
        self.write(name, token)
        for each in self.subject:
            self.edge("ComputedFrom", token.id, each)

    # exceptions and jumps

    def try_block(self, node: Any) -> None:
        if not node.finalbody:
            return self.handled(node)
        flow = self.flow
        with flow.cleanup() as cleanup:
            flow.start(flow.now)
            self.handled(node)
        is_normal = flow.is_reached(flow.now)
        flow.now.goes_to(cleanup.entry)
        flow.enter(cleanup.entry)
        self.statements(node.finalbody)
        flow.finish(cleanup, is_normal)

    def handled(self, node: Any) -> None:
        """The body with `except` and `else`."""
        flow, end, dispatch = self.flow, Block(), Block()
        with flow.caught_by(dispatch) if node.handlers else nullcontext():
            flow.start(flow.now)
            self.statements(node.body)
        flow.start(flow.now)
        self.statements(node.orelse)
        flow.now.goes_to(end)
        if node.handlers:
            flow.enter(dispatch)
            for handler in node.handlers:
                self.handler(handler, end)
            flow.leave("raise", flow.body.around)
        flow.enter(end)

    def handler(self, node: ast.ExceptHandler, end: Block) -> None:
        flow = self.flow
        self.visit(node.type)
        other = flow.now
        flow.start(other)
        if node.name:
            self.write(node.name, self.syntax.name_in(node, node.name, "as"))
        self.statements(node.body)
        if node.name:
            self.event(node.name, None, Kind.UNBIND)
        flow.now.goes_to(end)
        flow.start(*[other] if node.type is not None else [])

    def with_block(self, node: Any) -> None:
        for item in node.items:
            since = len(self.read)
            self.visit(item.context_expr)
            self.computed([item.optional_vars], since)
        self.statements(node.body)

    def result_of(self, node: Any) -> None:
        """return, yield, yield from."""
        self.visit(node.value)
        value = self.syntax.end_of(node.value) if node.value is not None else None
        if value is not None and self.result is not None:
            self.edge("ReturnsTo", value, self.result)

    def return_value(self, node: ast.Return) -> None:
        self.result_of(node)
        self.flow.jump("return")

    def raise_error(self, node: ast.Raise) -> None:
        self.children(node)
        self.flow.jump("raise")

    def break_loop(self, node: ast.Break) -> None:
        self.flow.jump("break")

    def continue_loop(self, node: ast.Continue) -> None:
        self.flow.jump("continue")

    # definitions and calls

    def function(self, node: Any) -> None:
        """Decorators, annotations and defaults are evaluated here, the body later."""
        notes = [each.annotation for each in parameters_of(node.args)]
        self.all([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults])
        for each in (*notes, node.returns):
            self.annotation(each)
        self.functions.append((node, self.scopes[node], self.flow.now))
        self.flow.start(self.flow.now)

    def lambda_function(self, node: ast.Lambda) -> None:
        self.all([*node.args.defaults, *node.args.kw_defaults])
        token = self.syntax.token_at(node)
        with self.inside(self.scopes[node]), self.flow.separate(node, self.flow.now):
            self.parameters(node.args)
            self.visit(node.body)
        value = self.syntax.end_of(node.body)
        if token is not None and value is not None:
            self.edge("ReturnsTo", value, token.id)
        self.flow.start(self.flow.now)

    def class_body(self, node: ast.ClassDef) -> None:
        self.all([*node.decorator_list, *node.bases, *node.keywords])
        with self.evaluated_in(self.scopes[node]):
            self.statements(node.body)

    def call(self, node: ast.Call) -> None:
        self.all([node.func, *node.args, *node.keywords])
        for argument, formal in formal_arguments(node, self.scope, self.scopes):
            value = self.syntax.end_of(argument)
            token = self.syntax.token_at(formal)
            if value is not None and token is not None:
                self.edge("FormalArgName", value, token.id)

    def dictionary(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            self.all([key, value])

    def nothing(self, node: ast.AST) -> None:
        """Names in it are no variables, or there is nothing to evaluate."""


EVALUATED: dict[type, Callable] = {
    **dict.fromkeys(FUNCTIONS, Evaluation.function),
    **dict.fromkeys(COMPREHENSIONS, Evaluation.comprehension),
    **dict.fromkeys((ast.If, ast.IfExp), Evaluation.branch),
    **dict.fromkeys((ast.For, ast.AsyncFor), Evaluation.for_loop),
    **dict.fromkeys((ast.With, ast.AsyncWith), Evaluation.with_block),
    **dict.fromkeys((ast.Yield, ast.YieldFrom), Evaluation.result_of),
    **dict.fromkeys((ast.MatchAs, ast.MatchStar, ast.MatchMapping), Evaluation.pattern),
    **dict.fromkeys((ast.Import, ast.ImportFrom, ast.Constant), Evaluation.nothing),
    **dict.fromkeys((ast.Global, ast.Nonlocal, ast.Pass), Evaluation.nothing),
    **dict.fromkeys(WITHOUT_NODE, Evaluation.nothing),
    ast.Try: Evaluation.try_block,
    ast.Name: Evaluation.name,
    ast.Assign: Evaluation.assign,
    ast.AnnAssign: Evaluation.annotated,
    ast.AugAssign: Evaluation.augmented,
    ast.NamedExpr: Evaluation.walrus,
    ast.While: Evaluation.while_loop,
    ast.BoolOp: Evaluation.boolean,
    ast.Compare: Evaluation.comparison,
    ast.Match: Evaluation.match,
    ast.Return: Evaluation.return_value,
    ast.Raise: Evaluation.raise_error,
    ast.Break: Evaluation.break_loop,
    ast.Continue: Evaluation.continue_loop,
    ast.Lambda: Evaluation.lambda_function,
    ast.ClassDef: Evaluation.class_body,
    ast.Call: Evaluation.call,
    ast.Dict: Evaluation.dictionary,
}
EVALUATED[getattr(ast, "TryStar", ast.Try)] = Evaluation.try_block  # since Python 3.11


def _written(target: ast.AST) -> Iterator[ast.Name]:
    """The names that an assignment to a target writes."""
    if isinstance(target, ast.Name):
        yield target
    elif isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _written(each)
    elif isinstance(target, ast.Starred):
        yield from _written(target.value)


def _matches_all(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None
