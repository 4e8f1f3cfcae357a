"""What programs of a launch do to memory: seen by Triton's interpreter, which runs them in turn."""

import pytest
import torch
from triton.runtime import interpreter

from dynagat.ops import fused
from dynagat.ops.triton import attention, tiles
from tests.problems import MECHANISMS, make_problem, random_graph

pytestmark = [pytest.mark.usefixtures("forced", "short_segments")]


def problem_with_all(mechanism):
    graph = random_graph(5, 6, 30, relations=2, hub=30)
    options = {"edge_dim": 2, "dropout": 0.3, "batch": (2,), "dtype": torch.float32}
    return make_problem(mechanism, 3, 5, graph=graph, **options)


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


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_two_programs_of_a_launch_write_one_address(mechanism, monkeypatch):
    writers = Writers(monkeypatch)
    problem_with_all(mechanism).results(fused)
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


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_order_of_programs_does_not_change_a_bit(mechanism, monkeypatch):
    problem = problem_with_all(mechanism)
    expected = problem.results(fused)
    forwards = interpreter.InterpreterBuilder.set_grid_idx

    def backwards(builder, *index):
        last = (size - 1 - at for size, at in zip(builder.grid_dim, index, strict=True))
        forwards(builder, *last)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "set_grid_idx", backwards)
    for result, one in zip(problem.results(fused), expected, strict=True):
        assert torch.equal(result, one)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_training_step_makes_arrays_of_exactly_these_bytes(mechanism, monkeypatch):
    """N queries and keys, E edges: no array has E·H·C numbers."""
    num_nodes, num_edges, heads, channels, cut = 12, 70, 4, 16, 16
    graph = random_graph(num_nodes, num_nodes, num_edges)
    problem = make_problem(mechanism, heads, channels, graph=graph, dtype=torch.float32)
    made = allocations(monkeypatch)
    problem.run(fused)[0].sum().backward()
    wide, slots = heads * channels, 2 * (num_edges // cut + 1)
    of_query = heads if mechanism == "gat" else wide
    tables = {"gat": 2 * heads + wide, "gatv2": 2 * wide, "dpgat": 3 * wide}[mechanism]
    numbers = [num_nodes * wide, num_nodes * (wide + 2 * heads)]  # out, state
    numbers += [slots * heads * (channels + 2)]  # softmax of segments
    numbers += [num_edges * 2 * heads]  # records
    numbers += [num_nodes * tables]  # gradients
    numbers += [slots * (2 * of_query + (0 if mechanism == "gatv2" else wide))]  # of segments
    if mechanism == "gatv2":
        numbers += [wide * (-(-num_nodes // tiles.ROWS) + num_edges // cut)]  # of d a
        numbers += [num_edges * wide // 8 // 4]  # signs
    assert sum(size for size in made if size > 4) == 4 * sum(numbers)
    assert max(made) < 4 * num_edges * wide


def allocations(monkeypatch):
    """The bytes of every array that the launching code makes."""
    made, inside = [], []
    launch = attention.launch

    def hidden(*arguments, **more):  # the interpreter makes arrays of its own
        inside.append(True)
        launch(*arguments, **more)
        inside.pop()

    def noted(make):
        def call(*arguments, **options):
            tensor = make(*arguments, **options)
            made.extend([] if inside else [tensor.nbytes])
            return tensor

        return call

    monkeypatch.setattr(attention, "launch", hidden)
    for owner, name in ((torch.Tensor, "new_empty"), (torch.Tensor, "new_zeros"),
                        (torch, "empty_like"), (torch, "zeros_like")):  # fmt: skip
        monkeypatch.setattr(owner, name, noted(getattr(owner, name)))
    return made
