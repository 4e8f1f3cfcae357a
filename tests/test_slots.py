"""Slots and candidates: each candidate has the edges that it would have in the slot."""

import contextlib
import gc
import inspect
import random
import shlex
import textwrap
from collections import deque

import pytest

from dynagat.data.programs import python_graph
from dynagat.data.programs.cutting import DISTANCE
from dynagat.data.programs.data_flow import CANDIDATE
from dynagat.data.programs.layout import EDGE_TYPES, MAX_CANDIDATES, SLOT
from dynagat.data.programs.python_graph import FLOW, OF_VARIABLE, Program
from dynagat.data.programs.slots import candidates

MODULES = [textwrap, shlex, contextlib]  # real programs, with loops, try, with and closures


def program_of(module):
    return Program.of(inspect.getsource(module))


def use_at(program, line, column):
    (use,) = [u for u in program.uses if (u.token.line, u.token.column) == (line, column)]
    return use


def names(program, line, column):
    use = use_at(program, line, column)
    return [each.name for each in candidates(use, program.flow)]


def edges_of(program, kinds=EDGE_TYPES):
    arrays = program.arrays
    edges = zip(arrays.kind.tolist(), arrays.source.tolist(), arrays.target.tolist(), strict=True)
    return {(EDGE_TYPES[k], s, t) for k, s, t in edges if EDGE_TYPES[k] in kinds}


def with_name(source, use, name):
    """The program with another variable in the slot."""
    lines = source.replace("\r\n", "\n").split("\n")
    line, start = lines[use.token.line - 1], use.token.column
    lines[use.token.line - 1] = line[:start] + name + line[start + len(use.token.text) :]
    return "\n".join(lines)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_a_candidate_has_the_edges_that_it_has_in_the_changed_program(module):
    source = inspect.getsource(module)
    program = Program.of(source)
    checked = 0
    for use in random.Random(0).sample(program.uses, 6):
        for variable in candidates(use, program.flow):
            if variable is use.variable:
                continue
            placed = program.flow.place(variable, use)
            slot = use.token.id
            own = {e for e in edges_of(program, FLOW) if e[1] in variable.mentions}
            for kind, pairs in placed.removed.items():
                own -= {(kind, *pair) for pair in pairs}
            for kind, pairs in placed.added.items():
                own |= {(kind, *(slot if end == CANDIDATE else end for end in p)) for p in pairs}
            changed = Program.of(with_name(source, use, variable.name))
            ends = {*variable.mentions, slot}
            assert own == {e for e in edges_of(changed, FLOW) if e[1] in ends}
            checked += 1
    assert checked > 5


def test_the_candidates_are_the_nearest_variables_whose_writes_reach_the_slot():
    source = textwrap.dedent("""
        import os
        LIMIT = max()
        def f(a, b):
            c = a
            if c:
                d = b
            e = [g for g in c]
            h = print(c, LIMIT)
            i = 1
            later = 2
    """)
    program = Program.of(source)
    assert names(program, 9, 14) == ["c", "e", "b", "d", "a"]  # not h, g, os, f, later
    assert names(program, 9, 17) == ["c", "e", "b", "d", "a"]
    assert program.record(use_at(program, 9, 17), "f.py") is None  # LIMIT is not among them
    assert names(program, 5, 8) == ["b", "a", "LIMIT"]


def test_a_variable_of_a_known_other_type_is_no_candidate():
    source = textwrap.dedent("""
        def f(a: str, b: "int", c, d=1.5, *rest, e=None, flag=False, text: str | None = None):
            n = 1
            n += 2
            x = "a" if c else "b"
            print(n)
            print(a)
    """)
    program = Program.of(source)
    assert names(program, 6, 10) == ["c", "x", "n", "e", "d"]
    assert names(program, 7, 10) == ["c", "x", "text", "e", "a"]


@pytest.mark.parametrize("text", ["-" * 50_000 + "1", "int" + " | None" * 5000, r"\ud800", "[("])
def test_an_annotation_in_quotes_that_can_not_be_parsed_tells_no_type(text):
    program = Program.of(f'def f(a: "{text}", b: str):\n    return b\n')
    assert names(program, 2, 11) == ["b", "a"]


def test_annotations_are_no_slots():
    source = "T = U = max()\ndef f(a: T) -> U:\n    b: T = a\n    return T\n"
    places = [(use.token.line, use.token.column) for use in Program.of(source).uses]
    assert places == [(3, 11), (4, 11)]


def slot_record(source, line, column, distance=DISTANCE):
    program = Program.of(source)
    return program.record(use_at(program, line, column), "f.py", distance)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_record_leaves_the_garbage_collector_as_it_was(is_enabled, monkeypatch):
    monkeypatch.setattr(python_graph, "cut_record", lambda *_: {"enabled": gc.isenabled()})
    gc.enable() if is_enabled else gc.disable()
    try:
        record = slot_record("def f(x, y):\n    return g(x, y)\n", 2, 13)
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()
    assert not record["enabled"]


def labelled(record, kind):
    labels = record["ContextGraph"]["NodeLabels"]
    edges = record["ContextGraph"]["Edges"].get(kind, [])
    return sorted((labels[str(s)], labels[str(t)], s, t) for s, t in edges)


def test_a_record_is_wired_as_in_the_original():
    """Equals(x, y): return equals(<SLOT>, y), as in the example of the original data set."""
    record = slot_record("def f(x, y):\n    return g(x, y)\n", 2, 13)
    graph = record["ContextGraph"]
    assert record["SlotDummyNode"] == 0
    assert graph["NodeLabels"]["0"] == SLOT
    # the nearest mention comes first, whichever is correct
    assert record["SymbolCandidates"] == [
        {"SymbolDummyNode": 1, "SymbolName": "y", "IsCorrect": False},
        {"SymbolDummyNode": 2, "SymbolName": "x", "IsCorrect": True},
    ]
    x, y, used = [int(n) for n, label in graph["NodeLabels"].items() if label in "xy"][2:]
    assert sorted(graph["Edges"]["LastUse"]) == sorted([[1, y], [2, x], [used, 1]])
    assert sorted(graph["Edges"]["LastLexicalUse"]) == sorted([[1, y], [2, x], [used, 1]])
    assert sorted(graph["Edges"]["LastWrite"]) == sorted([[1, y], [2, x], [used, y]])
    assert [t for s, t in graph["Edges"]["NextToken"] if s == 0] == [used - 1]


def test_the_slot_keeps_only_edges_that_do_not_tell_its_variable():
    source = "def f(x, y):\n    if x:\n        z = x\n    return y\n"
    record = slot_record(source, 3, 12)
    kinds = {k for k, pairs in record["ContextGraph"]["Edges"].items() for p in pairs if 0 in p}
    assert kinds == {"Child", "NextToken", "ComputedFrom"}
    assert not kinds & set(OF_VARIABLE)
    assert ("z", "If") not in [row[:2] for row in labelled(record, "GuardedBy")]
    assert [row[:2] for row in labelled(record, "GuardedBy")] == [("z", "x")]


@pytest.mark.parametrize("distance", [1, 3, DISTANCE])
def test_a_record_keeps_the_nodes_within_the_distance(distance):
    program = program_of(textwrap)
    use = random.Random(1).choice(program.uses)
    record = program.record(use, "textwrap.py", distance)
    graph = record["ContextGraph"]
    around = {int(node): set() for node in graph["NodeLabels"]}
    for pairs in graph["Edges"].values():
        for source, target in pairs:
            around[source].add(target)
            around[target].add(source)
    far = {0: 0} | {c["SymbolDummyNode"]: 0 for c in record["SymbolCandidates"]}
    todo = deque(far)
    while todo:
        node = todo.popleft()
        for other in around[node] - far.keys():
            far[other] = far[node] + 1
            todo.append(other)
    assert far.keys() == around.keys()
    assert max(far.values()) == distance
    assert len(around) < len(program.syntax.labels)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_record_is_well_formed(module):
    program, count = program_of(module), 0
    for use in random.Random(2).sample(program.uses, 25):
        record = program.record(use, "a.py", 4)
        if record is None:
            continue
        count += 1
        graph, options = record["ContextGraph"], record["SymbolCandidates"]
        nodes = [int(each) for each in graph["NodeLabels"]]
        assert nodes == list(range(len(nodes)))
        assert {int(each) for each in graph["NodeTypes"]} <= set(nodes)
        assert graph["Edges"].keys() <= set(EDGE_TYPES)
        for pairs in graph["Edges"].values():
            assert all(0 <= end < len(nodes) for pair in pairs for end in pair)
            assert len({tuple(pair) for pair in pairs}) == len(pairs)
        assert [each["IsCorrect"] for each in options].count(True) == 1
        assert 2 <= len(options) <= MAX_CANDIDATES
        assert [each["SymbolDummyNode"] for each in options] == list(range(1, len(options) + 1))
        assert [graph["NodeLabels"][str(n + 1)] for n in range(len(options))] == [
            each["SymbolName"] for each in options
        ]
        assert program.syntax.tokens[record["slotTokenIdx"]] is use.token
    assert count > 5
