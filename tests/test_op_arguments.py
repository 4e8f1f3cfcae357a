"""The registered ops, called directly: what the kernels can't read is refused with an error."""

import random

import pytest
import torch

from dynagat.ops import fused
from tests.problems import MECHANISMS, make_problem, random_graph

pytestmark = pytest.mark.native

FIELDS = fused.AttentionInputs._fields
ERRORS = (TypeError, ValueError, RuntimeError, MemoryError)
OTHER_DTYPES = [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.cfloat]


def any_axis(tensor, rng):
    """Not the last one: the values of gat may have any number of channels."""
    return rng.randrange(max(tensor.dim() - 1, 1))


WRONG_TENSOR = {
    "dtype": lambda t, rng: t.to(rng.choice([d for d in OTHER_DTYPES if d != t.dtype])),
    "device": lambda t, rng: t.to("meta"),
    "shorter": lambda t, rng: t.narrow(axis := any_axis(t, rng), 0, t.shape[axis] - 1),
    "longer": lambda t, rng: torch.cat([t, t], dim=any_axis(t, rng)),
    "no axes": lambda t, rng: t.flatten()[0],
    "one axis more": lambda t, rng: t[None],
    "one axis fewer": lambda t, rng: t[..., 0],
    "empty": lambda t, rng: t[:0],
    "huge without numbers": lambda t, rng: t.new_empty(0, 2**31, 2**20),
    "sparse": lambda t, rng: t.to_sparse(),
    "missing": lambda t, rng: None,
}
WRONG_NUMBER = {
    "mechanism": ["", "gcn", "GAT"],
    "num_edges": [-1, 0, 119, 2**31, 2**62],
    "num_relations": [-1, 0, 2, 7, 2**62],
    "dropout": [-0.5, 1.5, float("nan"), float("inf")],
}


def make_arguments(mechanism):
    """Valid arguments of `attend` and of `attend_backward`, by name."""
    problem = make_problem(mechanism, 2, 8, graph=random_graph(20, 25, 120), edge_dim=2)
    query, key, third = (t.detach().float() for t in problem.tables)
    tables = (query, key, None, third) if mechanism == "gatv2" else (query, key, third, None)
    edges = (t.detach().float() for t in problem.tensors.values())
    seed, graph = torch.tensor(3), problem.graph
    fields = (*tables, *edges, seed, graph.tensors, mechanism, graph.num_edges, 1, 0.2, 0.4)
    forward = dict(zip(FIELDS, fields, strict=True)) | {"return_weights": True}
    out, top, weights = torch.ops.dynagat.attend(**forward)
    backward = {"dout": out, "dweights": weights, "top": top} | forward | {"wants_dedge": True}
    del backward["return_weights"]
    return {"attend": forward, "attend_backward": backward}


def spoil(arguments, rng):
    """Make one argument invalid; returns what was done."""
    tensors = {name: t for name, t in arguments.items() if isinstance(t, torch.Tensor)}
    kind = rng.choice(["tensor"] * 3 + ["array", "number"])
    if kind == "number":
        name = rng.choice(list(WRONG_NUMBER))
        arguments[name] = rng.choice(WRONG_NUMBER[name])
        return name, arguments[name]
    how = rng.choice(list(WRONG_TENSOR))
    if kind == "array":
        at, arrays = rng.randrange(6), list(arguments["graph"])
        if how == "missing":
            arrays.pop(at)
        else:
            arrays[at] = WRONG_TENSOR[how](arrays[at], rng)
        arguments["graph"] = arrays
        return fused.ARRAYS[at], how
    optional = {"dweights", "edge"}  # without them, the call is valid
    name = rng.choice([name for name in tensors if name != "seed" and name not in optional])
    arguments[name] = WRONG_TENSOR[how](tensors[name], rng)
    return name, how


def call(op, arguments):
    return getattr(torch.ops.dynagat, op)(**arguments)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_invalid_argument_of_an_op_raises_an_error(mechanism):
    rng = random.Random(0)
    valid = make_arguments(mechanism)
    for _ in range(200):
        op = rng.choice(list(valid))
        arguments = dict(valid[op])
        change = spoil(arguments, rng)
        with pytest.raises(ERRORS):
            pytest.fail(f"{op} accepted {change}: {call(op, arguments)}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_strides_do_not_change_the_result(mechanism):
    for op, arguments in make_arguments(mechanism).items():
        strided = {
            name: t.mT.contiguous().mT if isinstance(t, torch.Tensor) and t.dim() > 1 else t
            for name, t in arguments.items()
        }
        for x, y in zip(call(op, strided), call(op, arguments), strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize(
    ("name", "dtype"), [("dout", torch.float16), ("query", torch.float16), ("a", torch.float16)]
)
def test_the_message_names_the_argument_and_its_dtype(name, dtype):
    arguments = make_arguments("gatv2")["attend_backward"]
    arguments[name] = arguments[name].to(dtype)
    with pytest.raises(TypeError, match=f"{name} must have shape .* but .* holds {dtype}"):
        torch.ops.dynagat.attend_backward(**arguments)


EDGES = {"query_index": torch.tensor([0, 1, 2]), "key_index": torch.tensor([2, 1, 0])}
EDGES |= {"relation": None, "edge_id": None, "num_queries": 3, "num_keys": 3}
EDGES |= {"num_relations": 1, "first_loop": 3, "loop_relation": 0}
WRONG_EDGES = [
    {"key_index": torch.tensor([2, 1])},
    {"query_index": torch.tensor([0.0, 1.0, 2.0])},
    {"query_index": torch.tensor([0, 1, 3])},
    {"key_index": torch.tensor([0, 1, -1])},
    {"edge_id": torch.tensor([0])},
    {"relation": torch.tensor([0, 0, 1])},
    {"num_relations": 0},
    {"num_relations": 2**62},
    {"num_queries": -1},
    {"num_keys": 2**31},
    {"first_loop": 2**31 - 2},
    {"loop_relation": 1},
    {"loop_relation": -1},
]


@pytest.mark.parametrize("case", range(len(WRONG_EDGES)))
def test_invalid_edges_of_the_grouping_op_raise_an_error(case):
    torch.ops.dynagat.group(**EDGES)
    with pytest.raises(ERRORS):
        torch.ops.dynagat.group(**EDGES | WRONG_EDGES[case])
