"""Contenders: the same layer with the same weights in PyG, compiled PyG, DGL and dynagat."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Generator, Tensor, nn

import dynagat
from bench.cases import Case
from bench.isolation import CannotRun, check_memory, reason_of
from dynagat.ops import devices

# Peak memory of a training step, in units of E·H·C floats. Upper estimates, to decide beforehand
# whether a contender fits into memory; docs/performance.md has measured values.
PEAK = {"pyg": 6.6, "compiled": 2.0, "dgl": 6.6, "reference": 6.6}
TURBO = ("turbo_gnn", "skewgnn")  # its package, which was renamed

# By mechanism: PyG's name of a parameter -> the name in the other library, where they differ.
DYNAGAT_NAMES = {
    "gat": {},
    "gatv2": {},
    "dpgat": {
        "lin_key.weight": "lin_l.weight",
        "lin_query.weight": "lin_r.weight",
        "lin_value.weight": "lin_v.weight",
    },
}
DGL_NAMES = {
    "gat": {"att_src": "attn_l", "att_dst": "attn_r", "lin.weight": "fc.weight"},
    "gatv2": {
        "att": "attn",
        "lin_l.weight": "fc_src.weight",
        "lin_l.bias": "fc_src.bias",
        "lin_r.weight": "fc_dst.weight",
        "lin_r.bias": "fc_dst.bias",
        "bias": "",  # DGL's layer has no output bias
    },
}


@dataclass(frozen=True)
class Inputs:
    """The inputs that all contenders of a case share."""

    x: Tensor  # [N, in]
    edge_index: Tensor  # [2, E] of (key, query)
    gradient: Tensor  # [N, H·C]: gradient of the output


@dataclass(frozen=True)
class Contender:
    """A layer on its graph. A step is a forward and a backward pass."""

    forward: Callable[[Any], Tensor]  # the edges in the library's own form -> [N, H·C]
    prepare: Callable[[], Any]  # returns those edges; not timed
    parameters: Mapping[str, Tensor]  # by PyG's names; includes x if it has a gradient
    gradient: Tensor

    def step(self, edges: Any) -> Tensor:
        for parameter in self.parameters.values():
            parameter.grad = None
        out = self.forward(edges)
        out.backward(self.gradient)
        return out


def draw_inputs(case: Case) -> Inputs:
    generator = Generator().manual_seed(1)
    x = torch.randn(case.graph.num_nodes, case.in_dim, generator=generator)
    shape = (case.graph.num_nodes, case.heads * case.channels)
    gradient = torch.randn(shape, generator=generator)
    return Inputs(x.requires_grad_(case.input_grad), case.graph.edge_index(), gradient)


def start(name: str, case: Case, inputs: Inputs) -> Contender:
    """The contender, ready for its first step. Raises CannotRun if it cannot run here."""
    num_edges, device = inputs.edge_index.shape[1], inputs.x.device
    check_memory(PEAK.get(name, 0.0) * num_edges * case.heads * case.channels * 4, device)
    with device:  # layers are made there
        return CONTENDERS[name](case, inputs)


def start_pyg(case: Case, inputs: Inputs) -> Contender:
    return _contender(_pyg_layer(case), case, inputs, {}, lambda: inputs.edge_index)


def start_compiled(case: Case, inputs: Inputs) -> Contender:
    if not case.compiles:
        raise CannotRun("not measured in a quick run")
    torch.compiler.reset()
    layer = _pyg_layer(case)
    compiled = torch.compile(layer, dynamic=False)
    return _contender(layer, case, inputs, {}, lambda: inputs.edge_index, compiled)


def start_dgl(case: Case, inputs: Inputs) -> Contender:
    if case.mechanism not in DGL_NAMES:
        raise CannotRun("its DotGatConv does less work: one projection for query, key and value")
    try:
        import dgl
        from dgl.nn import pytorch as layers
    except (ImportError, OSError, RuntimeError) as error:
        raise CannotRun(f"cannot be imported: {reason_of(error)}") from error
    graph = dgl.graph(tuple(inputs.edge_index), num_nodes=case.graph.num_nodes)
    graph.create_formats_()
    make = {"gat": layers.GATConv, "gatv2": layers.GATv2Conv}[case.mechanism]
    layer = make(case.in_dim, case.channels, case.heads, allow_zero_in_degree=True)
    names = DGL_NAMES[case.mechanism]
    return _contender(
        layer, case, inputs, names, lambda: graph, lambda x, edges: layer(edges, x).flatten(1)
    )


def start_turbo(case: Case, inputs: Inputs) -> Contender:
    """turbo-gnn has the attention alone; PyG's projections are put before it."""
    if case.mechanism != "gatv2":
        raise CannotRun("of these mechanisms it has GATv2 only")
    package = _import_turbo()
    make_graph = package.AdjacencyForwardBackwardWithNodeBuckets.from_edge_list
    graph = make_graph(inputs.edge_index.cpu(), num_nodes=case.graph.num_nodes)
    graph, layer = graph.to(inputs.x.device), _pyg_layer(case)
    shape = (-1, case.heads, case.channels)

    def call(x: Tensor, edges: Any) -> Tensor:
        query, key = layer.lin_r(x).view(shape), layer.lin_l(x).view(shape)
        options = {"x_neighbors": key, "attention_weights": layer.att[0], "negative_slope": 0.2}
        return package.gatv2_aggr(edges, query, **options).flatten(1) + layer.bias

    return _contender(layer, case, inputs, {}, lambda: graph, call)


def _import_turbo() -> Any:
    for name in TURBO:
        if importlib.util.find_spec(name) is not None:
            try:
                return importlib.import_module(name)
            except (ImportError, OSError, RuntimeError) as error:
                raise CannotRun(f"cannot be imported: {reason_of(error)}") from error
    raise CannotRun("is not installed")


def start_dynagat(case: Case, inputs: Inputs) -> Contender:
    layer = _dynagat_layer(case)
    return _contender(layer, case, inputs, DYNAGAT_NAMES[case.mechanism], lambda: inputs.edge_index)


def start_dynagat_on_new_graphs(case: Case, inputs: Inputs) -> Contender:
    """A new edge list in each step, as for mini-batches: the step includes building the graph."""
    layer = _dynagat_layer(case)
    return _contender(layer, case, inputs, DYNAGAT_NAMES[case.mechanism], inputs.edge_index.clone)


def start_implementation(name: str, case: Case, inputs: Inputs) -> Contender:
    """dynagat's layer with this implementation of the ops, in this process from now on."""
    devices.forced = name
    return start_dynagat(case, inputs)


CONTENDERS: Mapping[str, Callable[[Case, Inputs], Contender]] = {
    "pyg": start_pyg,
    "compiled": start_compiled,
    "dgl": start_dgl,
    "turbo-gnn": start_turbo,
    "dynagat": start_dynagat,
    "dynagat, new graph": start_dynagat_on_new_graphs,
    "reference": partial(start_implementation, "reference"),
    "streamed": partial(start_implementation, "streamed"),
}


def _pyg_layer(case: Case) -> nn.Module:
    torch.manual_seed(2)
    sizes = (case.in_dim, case.channels, case.heads)
    if case.mechanism == "dpgat":  # without biases, it computes the same function as DPGATConv
        return pyg.TransformerConv(*sizes, root_weight=False, beta=False, bias=False)
    make = {"gat": pyg.GATConv, "gatv2": pyg.GATv2Conv}[case.mechanism]
    return make(*sizes, add_self_loops=False)


def _dynagat_layer(case: Case) -> nn.Module:
    layers = {"gat": dynagat.GATConv, "gatv2": dynagat.GATv2Conv, "dpgat": dynagat.DPGATConv}
    has_bias = case.mechanism != "dpgat"
    sizes = (case.in_dim, case.channels, case.heads)
    return layers[case.mechanism](*sizes, add_self_loops=False, bias=has_bias)


def _contender(
    layer: nn.Module,
    case: Case,
    inputs: Inputs,
    names: Mapping[str, str],
    prepare: Callable[[], Any],
    call: Callable[[Tensor, Any], Tensor] | None = None,
) -> Contender:
    """The layer with PyG's weights; `call` replaces layer(x, edges) if given."""
    parameters = _copy_weights_(layer, case, names)
    if inputs.x.requires_grad:
        parameters["x"] = inputs.x
    call = layer if call is None else call
    return Contender(lambda edges: call(inputs.x, edges), prepare, parameters, inputs.gradient)


def _copy_weights_(layer: nn.Module, case: Case, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Copy PyG's weights into the layer; return its parameters under PyG's names."""
    own, copied = dict(layer.named_parameters()), {}
    for name, source in _pyg_layer(case).named_parameters():
        if name.startswith("lin_skip") or not names.get(name, name):
            continue  # unused by TransformerConv, or missing in DGL's layer
        copied[name] = own[names.get(name, name)]
        copied[name].data.copy_(source.data)
    return copied
