"""Network: an embedding, graph layers and a readout, with one forward for every use.

Training on a whole graph or on samples, layer-wise inference and the microscope all go through
`Layer.forward`: it maps the features of a graph's keys to those of its queries, where the queries
are the first of the keys. On a whole graph, queries and keys are the same nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from torch import Tensor, nn

from dynagat.graph import Graph
from dynagat.nn.dpgat import DPGATConv
from dynagat.nn.gat import GATConv
from dynagat.nn.gatv2 import GATv2Conv
from dynagat.nn.gcn import GCNConv
from dynagat.nn.pyg_layers import make_gin, make_pyg_attention, make_sage
from dynagat.nn.relational import RGCNConv, RGINConv
from dynagat.nn.sage import SAGEConv
from dynagat.nn.tail import Waiting

ATTENTION: dict[str, Any] = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}
BASELINES = ("gcn", "gin", "sage")  # without attention, so without heads
MECHANISMS = (*BASELINES, *ATTENTION)

MakeConv = Callable[[int, int, int], nn.Module]  # (input width, output width, heads)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """What a layer is given besides x: the edges, and what is known about them.

    Args:
        graph: with relations, if the edges have any.
        degree: [num_keys], the degrees in the whole graph, if `graph` is a sample of it.
        edge_attr: [E, edge_dim], edge features in the order of the edge numbers.
    """

    graph: Graph
    degree: Tensor | None = None
    edge_attr: Tensor | None = None

    @classmethod
    def of(cls, edges: Graph | Neighbourhood) -> Neighbourhood:
        return cls(edges) if isinstance(edges, Graph) else edges


@final
class Layer(nn.Module):
    """out_i = after(skip(x_i) + g inner(conv(z)_i + own(z_i))),  z = before(x)

    Args:
        conv: a graph layer that takes (x, graph).
        own: of the node's own features; None leaves the term out.
        skip: None leaves the term out.
        gain: g in training.
        eval_gain: g in evaluation.
    """

    def __init__(
        self,
        conv: nn.Module,
        *,
        before: nn.Module | None = None,
        own: nn.Module | None = None,
        inner: nn.Module | None = None,
        skip: nn.Module | None = None,
        after: nn.Module | None = None,
        gain: float = 1.0,
        eval_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.conv, self.own, self.skip = conv, own, skip
        self.gain, self.eval_gain = gain, eval_gain
        self.before, self.inner = before or nn.Identity(), inner or nn.Identity()
        self.after = after or nn.Identity()

    def forward(self, x: Tensor, edges: Graph | Neighbourhood) -> Tensor:
        """[num_keys, in] -> [num_queries, out]"""
        near = Neighbourhood.of(edges)
        z, queries = Waiting(x).then(self.before).result(), near.graph.num_queries
        out = self._convolve(z, near)
        if self.own is not None:
            out = out + self.own(_first(z, queries))
        waiting = Waiting(out).then(self.inner)
        if self.skip is not None:
            gain = self.gain if self.training else self.eval_gain
            waiting = waiting.plus(self.skip(_first(x, queries)), gain)
        return waiting.then(self.after).result()

    def _convolve(self, x: Tensor, near: Neighbourhood) -> Tensor:
        graph = near.graph
        if isinstance(self.conv, GCNConv):
            return self.conv(x, graph, near.degree)
        options = {} if near.edge_attr is None else {"edge_attr": near.edge_attr}
        own = _first(x, graph.num_queries)
        return self.conv(x if own is x else (x, own), graph, **options)


def _first(x: Tensor, count: int) -> Tensor:
    """The first rows of x; x itself if these are all, because the gradient of a slice is slow."""
    return x if len(x) == count else x[:count]


@final
class Network(nn.Module):
    """readout(layer_n( … layer_1(embedding(x))))

    Args:
        layers: one after the other.
        embedding: of what the nodes have; default: the identity.
        readout: of what the last layer's queries get; default: the identity. It may take more
            inputs: which graph each node belongs to, pairs of nodes, candidates.
    """

    def __init__(
        self,
        layers: Iterable[Layer],
        *,
        embedding: nn.Module | None = None,
        readout: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding or nn.Identity()
        self.layers = nn.ModuleList(layers)
        self.readout = readout or nn.Identity()

    def forward(
        self,
        x: Tensor,
        edges: Graph | Neighbourhood | Sequence[Graph | Neighbourhood],
        *readout_inputs: Any,
    ) -> Tensor:
        """Output of the readout.

        Args:
            x: input of the embedding, a row for each key of the first layer.
            edges: the whole graph, or one sample of it for each layer, the first layer's first.
            readout_inputs: passed on to the readout.
        """
        return self.readout(self.encode(x, edges), *readout_inputs)

    def encode(
        self, x: Tensor, edges: Graph | Neighbourhood | Sequence[Graph | Neighbourhood]
    ) -> Tensor:
        """[num_queries, out] of the last layer, before the readout."""
        is_one = isinstance(edges, (Graph, Neighbourhood))
        each = [edges] * len(self.layers) if is_one else edges
        if len(each) != len(self.layers):
            raise ValueError(
                f"edges must hold a graph for each of {len(self.layers)} layers, "
                f"but hold {len(each)}"
            )
        x = self.embedding(x)
        for layer, near in zip(self.layers, each, strict=True):
            x = layer(x, near)
        return x


def make_conv(
    mechanism: str,
    *,
    bias: bool = False,
    concat: bool = True,
    share_weights: bool = True,
    dropout: float = 0.0,
    edge_dim: int | None = None,
    num_relations: int | None = None,
    activation: Callable[[], nn.Module] = nn.ReLU,
    source: Literal["dynagat", "pyg"] = "dynagat",
) -> MakeConv:
    """A function that makes layers of a mechanism, without self-loops of their own.

    Args:
        bias: whether attention layers have one.
        concat: whether the outputs of the heads are concatenated; else each head has the whole
            output width, and the layer's output is their mean.
        share_weights: one projection for query and key in GATv2 and in DPGAT.
        dropout: of attention weights.
        edge_dim: width of edge features, if there are any.
        num_relations: number of relations, if edges have them.
        activation: of the messages in GIN with relations.
        source: whose layers; PyG has no DPGAT, and its GCN can't be used on samples.
    """
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ValueError(f"mechanism must be one of {known}, but is {mechanism!r}")
    if source == "pyg" and mechanism in ("dpgat", "gcn"):
        raise ValueError(f"source=pyg has layers for gat, gatv2, gin, sage, not for {mechanism!r}")
    if num_relations is not None and (mechanism == "sage" or source == "pyg"):
        raise ValueError(f"there is no layer with relations for {mechanism!r} of {source}")
    if mechanism in BASELINES:
        if edge_dim is not None:
            raise ValueError(f"there is no layer with edge features for {mechanism!r}")
        if num_relations is not None:
            if mechanism == "gcn":
                return lambda width, out, heads: RGCNConv(width, out, num_relations)
            return lambda width, out, heads: RGINConv(width, out, num_relations, activation())
        sage = make_sage if source == "pyg" else SAGEConv
        make = {"gcn": GCNConv, "gin": make_gin, "sage": sage}[mechanism]
        return lambda width, out, heads: make(width, out)
    options: dict[str, Any] = {"add_self_loops": False, "bias": bias, "dropout": dropout}
    options |= {"edge_dim": edge_dim, "concat": concat}
    if mechanism != "gat":
        options["share_weights"] = share_weights
    if num_relations is not None:
        options["num_relations"] = num_relations

    def conv(width: int, out: int, heads: int) -> nn.Module:
        if concat and out % heads:
            raise ValueError(f"heads must divide the width {out} of a layer, but are {heads}")
        head_dim = out // heads if concat else out
        if source == "pyg":
            return make_pyg_attention(mechanism, width, head_dim, heads, **options)
        return ATTENTION[mechanism](width, head_dim, heads=heads, **options)

    return conv


def degrees(graph: Graph) -> Tensor:
    """[num_queries] int32: the number of keys of each query."""
    rows = graph.rowptr[:: graph.num_relations]
    return rows.diff()
