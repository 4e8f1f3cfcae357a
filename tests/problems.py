"""Random inputs for the ops: a graph, tables, options, and the tensors to differentiate."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dynagat.graph import Graph

MECHANISMS = ("gat", "gatv2", "dpgat")


def random_graph(num_queries, num_keys, num_edges, relations=1, hub=0) -> Graph:
    """Uniformly random edges; query 0 and key 0 get `hub` additional edges each."""
    query = torch.randint(0, max(num_queries, 1), (num_edges,))
    key = torch.randint(0, max(num_keys, 1), (num_edges,))
    if hub:
        query = torch.cat([query, torch.zeros(hub, dtype=torch.long)])
        key = torch.cat([key, torch.randint(0, num_keys, (hub,))])
        query = torch.cat([query, torch.randint(0, num_queries, (hub,))])
        key = torch.cat([key, torch.zeros(hub, dtype=torch.long)])
    relation = torch.randint(0, relations, query.shape) if relations > 1 else None
    return Graph.from_edges(
        query, key, num_queries, num_keys, relation=relation, num_relations=relations
    )


@dataclass
class Problem:
    """The arguments of one op call: `mechanism(*tables, graph, **tensors, **options)`."""

    mechanism: str
    graph: Graph
    tables: list[Tensor]
    tensors: dict[str, Tensor]
    options: dict = field(default_factory=dict)

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.tables, *self.tensors.values()]

    def to(self, dtype: torch.dtype) -> Problem:
        def cast(t):
            return t.detach().to(dtype).requires_grad_()

        tensors = {name: cast(t) for name, t in self.tensors.items()}
        return Problem(
            self.mechanism, self.graph, [cast(t) for t in self.tables], tensors, self.options
        )

    def run(self, backend, **more):
        op = getattr(backend, self.mechanism)
        return op(*self.tables, self.graph, **self.tensors, **self.options, **more)

    def results(self, backend) -> list[Tensor]:
        """out, weights, and the gradients of a fixed loss that depends on both."""
        out, weights = self.run(backend, return_weights=True)
        generator = torch.Generator().manual_seed(5)
        dout = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out)
        dweights = torch.randn(weights.shape, generator=generator, dtype=torch.float64).to(weights)
        loss = (out * dout).sum(dtype=weights.dtype) + (weights * dweights).sum()
        return [out, weights, *torch.autograd.grad(loss, self.leaves)]


def make_problem(
    mechanism,
    heads,
    channels,
    *,
    graph=None,
    batch=(),
    edge_dim=0,
    own_value=False,
    dtype=torch.float64,
    **options,
) -> Problem:
    graph = random_graph(20, 25, 120) if graph is None else graph
    rows = graph.num_relations

    def table(nodes, *row):
        return torch.randn(*batch, nodes * rows, *row, dtype=dtype, requires_grad=True)

    def parameter(*shape):
        return torch.randn(*shape, dtype=dtype, requires_grad=True)

    row_shape = (heads,) if mechanism == "gat" else (heads, channels)
    tables = [table(graph.num_queries, *row_shape), table(graph.num_keys, *row_shape)]
    tensors = {}
    if mechanism == "gatv2":
        tables.append(parameter(rows, heads, channels))
        if own_value:
            tensors["value"] = table(graph.num_keys, heads, channels)
    else:
        tables.append(table(graph.num_keys, heads, channels))
    if edge_dim:
        tensors["edge"] = parameter(graph.num_edges, edge_dim)
        tensors["edge_weight"] = parameter(rows, *row_shape, edge_dim)
    if options.get("dropout"):
        options.setdefault("seed", torch.tensor(1234567890123))
    return Problem(mechanism, graph, tables, tensors, options)
