"""What programs of a launch do to memory: seen by Triton's interpreter, which runs them in turn."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from triton.runtime import interpreter

from dynagat.ops import fused
from dynagat.ops.triton import attention, tiles
from tests.problems import MECHANISMS, make_problem, random_graph

pytestmark = [pytest.mark.usefixtures("forced", "short_segments")]

KINDS = ("whole", "compact")


def problem_with_all(mechanism, kind="whole"):
    """`kind` is "compact" for a graph whose tables have only the rows that edges use, and a table
    of values for gatv2, too."""
    is_compact = kind == "compact"
    graph = random_graph(5, 6, 30, relations=2, hub=30)
    options = {"edge_dim": 2, "dropout": 0.3, "batch": (2,), "dtype": torch.float32}
    problem = make_problem(mechanism, 3, 5, graph=graph, own_value=is_compact, **options)
    return compacted(problem) if is_compact else problem


def compacted(problem):
    graph = problem.graph.compact
    num_query_rows, num_key_rows = len(graph.used_query_rows), len(graph.used_key_rows)

    def first(table, axes, count):
        return table.narrow(-axes, 0, count).detach().clone().requires_grad_()

    axes = 2 if problem.mechanism == "gat" else 3
    query, key, *others = problem.tables
    tables = [first(query, axes, num_query_rows), first(key, axes, num_key_rows)]
    if problem.mechanism == "gatv2":
        tables += others  # a
        tensors = problem.tensors | {"value": first(problem.tensors["value"], 3, num_key_rows)}
    else:
        tables += [first(others[0], 3, num_key_rows)]
        tensors = problem.tensors
    return replace(problem, graph=graph, tables=tables, tensors=tensors)


class Writers:
    """Which program of the current launch wrote an address."""

    def __init__(self, monkeypatch):
        self.program_of, self.launches, self.conflicts = {}, 0, []
        store = interpreter.InterpreterBuilder.create_masked_store
        launch = attention.launch

        def noted_store(builder, ptrs, value, mask, *rest):
            program = tuple(builder.grid_idx)
            for address in ptrs.data[mask.data.astype(bool)].tolist():
                if self.program_of.setdefault(address, program) != program:
                    self.conflicts.append((self.launches, program, self.program_of[address]))
            return store(builder, ptrs, value, mask, *rest)

        def noted_launch(*arguments, **more):
            self.program_of = {}
            self.launches += 1
            launch(*arguments, **more)

        monkeypatch.setattr(interpreter.InterpreterBuilder, "create_masked_store", noted_store)
        monkeypatch.setattr(attention, "launch", noted_launch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_two_programs_of_a_launch_write_one_address(mechanism, kind, monkeypatch):
    writers = Writers(monkeypatch)
    problem_with_all(mechanism, kind).results(fused)
    assert writers.launches >= 9
    assert writers.program_of  # the last launch wrote something
    assert writers.conflicts == []


def test_two_writers_of_an_address_are_seen(monkeypatch):
    """If the kernel is told that tables have no rows, both batches write the first one's."""
    writers, launch = Writers(monkeypatch), attention.launch

    def spoilt(kernel, grid, options, **arguments):
        wrong = {"num_key_rows": 0} if kernel is attention.by_key_kernel else {}
        launch(kernel, grid, options, **arguments | wrong)

    monkeypatch.setattr(attention, "launch", spoilt)
    problem_with_all("gatv2").results(fused)
    assert writers.conflicts


def backwards(sizes, index):
    return [size - 1 - at for size, at in zip(sizes, index, strict=True)]


def shuffled(sizes, index):
    """The place of a program in a random order of all that is the same for the whole launch."""
    order = np.random.default_rng(0).permutation(math.prod(sizes))
    return [int(at) for at in np.unravel_index(order[np.ravel_multi_index(index, sizes)], sizes)]


@pytest.mark.parametrize(("kind", "order"), [("whole", backwards), ("compact", shuffled)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_order_of_programs_does_not_change_a_bit(mechanism, kind, order, monkeypatch):
    problem = problem_with_all(mechanism, kind)
    expected = problem.results(fused)
    in_order = interpreter.InterpreterBuilder.set_grid_idx

    def out_of_order(builder, *index):
        in_order(builder, *order(builder.grid_dim, index))

    monkeypatch.setattr(interpreter.InterpreterBuilder, "set_grid_idx", out_of_order)
    for result, one in zip(problem.results(fused), expected, strict=True):
        assert torch.equal(result, one)


def test_a_random_order_has_each_program_once():
    programs = list(np.ndindex(4, 3, 1))
    places = [tuple(shuffled((4, 3, 1), index)) for index in programs]
    assert sorted(places) == programs
    assert places != programs


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_training_step_makes_arrays_of_exactly_these_bytes(mechanism, monkeypatch):
    """N queries and keys, E edges: no array has E·H·C numbers."""
    num_nodes, num_edges, heads, channels, cut = 12, 70, 4, 16, 16
    graph = random_graph(num_nodes, num_nodes, num_edges)
    problem = make_problem(mechanism, heads, channels, graph=graph, dtype=torch.float32)
    with Allocations(monkeypatch) as made:
        problem.run(fused)[0].sum().backward()
    wide, slots = heads * channels, 2 * (num_edges // cut + 1)
    of_query = heads if mechanism == "gat" else wide
    tables = {"gat": 2 * heads + wide, "gatv2": 2 * wide, "dpgat": 3 * wide}[mechanism]
    numbers = [num_nodes * wide, num_nodes * (wide + 2 * heads)]  # out, state
    numbers += [slots * heads * (channels + 2)]  # softmax of segments
    numbers += [num_edges * 2 * heads]  # records
    numbers += [num_nodes * (wide + tables)]  # gradients of the output, which is copied, and others
    numbers += [slots * (2 * of_query + (0 if mechanism == "gatv2" else wide))]  # of segments
    if mechanism == "gatv2":
        numbers += [wide * (-(-num_nodes // tiles.ROWS) + num_edges // cut + 3)]  # d a, its parts
        numbers += [num_edges * wide // 8 // 4]  # signs
    assert sum(size for size in made.sizes if size > 4) == 4 * sum(numbers)
    assert max(made.sizes) < 4 * num_edges * wide


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_with_all_options_no_array_has_a_number_per_edge_and_channel(mechanism, monkeypatch):
    """Twice the edges take less memory more, in all arrays together, than one such array."""
    monkeypatch.setattr(attention, "CUT", 32)  # parts of rows are large beside tiny segments
    totals, heads, channels = [], 2, 64
    for num_edges in (64, 128):
        graph = random_graph(12, 12, num_edges, relations=2)
        options = {"graph": graph, "edge_dim": 3, "dropout": 0.3, "dtype": torch.float32}
        problem = make_problem(mechanism, heads, channels, **options)
        with Allocations(monkeypatch) as made:
            out, weights = problem.run(fused, return_weights=True)
            (out.sum() + weights.square().sum()).backward()
        assert max(made.sizes) < 4 * num_edges * heads * channels
        totals.append(sum(made.sizes))
    assert totals[1] - totals[0] < 4 * 64 * heads * channels


class Allocations(TorchDispatchMode):
    """The bytes of every array that is made, except by the interpreter."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.sizes, launch = [], attention.launch

        def hidden(*arguments, **more):
            with _disable_current_modes():
                launch(*arguments, **more)

        monkeypatch.setattr(attention, "launch", hidden)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        known = {each.untyped_storage()._cdata for each in _tensors((args, kwargs))}
        for each in _tensors(out):
            if each.untyped_storage()._cdata not in known:
                self.sizes.append(each.untyped_storage().nbytes())
        return out


def _tensors(values):
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]
