"""Network: graph layers in a row, each with what stands around it. One forward for every use.

Training on a whole graph, on samples of it, layer-wise inference and the microscope all go through
`Layer.forward`: a layer takes what its keys have and gives what its queries get, where the queries
are the first of the keys. On a whole graph they are the same nodes.

The stacks are lists of layers: S, P and B are the paper's, D that of the GAT example that its
PubMed table seems to come from, `make_network` ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, final

from torch import Tensor, nn

from dynagat.graph import Graph
from dynagat.nn.dpgat import DPGATConv
from dynagat.nn.dropout import Dropout
from dynagat.nn.foreign import make_gin, make_pyg, make_sage
from dynagat.nn.gat import GATConv
from dynagat.nn.gatv2 import GATv2Conv
from dynagat.nn.gcn import GCNConv
from dynagat.nn.linear import Linear

ATTENTION: dict[str, Any] = {"gat": GATConv, "gatv2": GATv2Conv, "dpgat": DPGATConv}
BASELINES = ("gcn", "gin", "sage")
MECHANISMS = (*BASELINES, *ATTENTION)

MakeConv = Callable[[int, int, int], nn.Module]  # of the widths in and out, and the heads


@final
class Layer(nn.Module):
    """out_i = after(skip(x_i) + g inner(conv(before(x))_i)),  g = `gain` in training, else 1

    Args:
        conv: one of ours, or `OnGraph`, which take (x, graph).
        skip: None to leave the term out.
        gain: how often the new features are added.
    """

    def __init__(
        self,
        conv: nn.Module,
        *,
        before: nn.Module | None = None,
        inner: nn.Module | None = None,
        skip: nn.Module | None = None,
        after: nn.Module | None = None,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.conv, self.skip, self.gain = conv, skip, gain
        self.before, self.inner = before or nn.Identity(), inner or nn.Identity()
        self.after = after or nn.Identity()

    def forward(self, x: Tensor, graph: Graph, degree: Tensor | None = None) -> Tensor:
        """[num_keys, in] -> [num_queries, out]; only GCN needs the degrees, and only of parts."""
        out = self.inner(self._convolve(self.before(x), graph, degree))
        if self.skip is not None:
            out = self.skip(x[: graph.num_queries]) + (self.gain if self.training else 1.0) * out
        return self.after(out)

    def _convolve(self, x: Tensor, graph: Graph, degree: Tensor | None) -> Tensor:
        if isinstance(self.conv, GCNConv):
            return self.conv(x, graph, degree)
        is_whole = graph.num_queries == len(x)
        return self.conv(x if is_whole else (x, x[: graph.num_queries]), graph)


@final
class Network(nn.Module):
    """Layers one after the other."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(
        self, x: Tensor, graphs: Graph | Sequence[Graph], degree: Tensor | None = None
    ) -> Tensor:
        """What the last layer's queries get.

        Args:
            x: [N, in], of the first layer's keys.
            graphs: the whole graph, or a part of it for each layer, the first layer's first.
            degree: [N], of the first layer's keys in the whole graph, if the graphs are parts.
        """
        each = [graphs] * len(self.layers) if isinstance(graphs, Graph) else graphs
        if len(each) != len(self.layers):
            raise ValueError(f"graphs must be one for each of {len(self.layers)} layers, "
                             f"but are {len(each)}")  # fmt: skip
        for layer, graph in zip(self.layers, each, strict=True):
            x = layer(x, graph, None if degree is None else degree[: graph.num_keys])
        return x


def stack_s(
    conv: MakeConv,
    widths: Sequence[int],
    *,
    heads: int,
    last_heads: int = 1,
    dropout: float = 0.0,
    residual: Literal["none", "middle", "all"] = "middle",
    gain: float = 1.0,
    norm: bool = True,
) -> Network:
    """x ← dropout(LayerNorm(x + g ReLU(conv(x)))), and conv alone in the last layer

    For arxiv, mag and the edge noise. "middle": x is added where both widths are the hidden one;
    "all": elsewhere, too, through a linear map, also in the last layer.
    """
    layers = []
    for width, out, count, place in _places(widths, heads, last_heads):
        skip = nn.Identity() if place == "middle" else Linear(width, out, bias=False)
        is_added = residual == "all" or (residual == "middle" and place == "middle")
        rest: list[nn.Module] = [nn.LayerNorm(out)] if norm else []
        is_last = place == "last"
        layers.append(
            Layer(
                conv(width, out, count),
                inner=None if is_last else nn.ReLU(),
                skip=skip if is_added else None,
                after=None if is_last else nn.Sequential(*rest, Dropout(dropout)),
                gain=gain if place == "middle" else 1.0,
            )
        )
    return Network(layers)


def stack_p(
    conv: MakeConv,
    widths: Sequence[int],
    *,
    heads: int,
    last_heads: int = 1,
    dropout: float = 0.0,
) -> Network:
    """x ← dropout(ELU(conv(x) + W x + b)), and conv(x) + W x + b in the last layer: products"""
    return Network(
        Layer(
            conv(width, out, count),
            skip=nn.Linear(width, out),
            after=None if place == "last" else nn.Sequential(nn.ELU(), Dropout(dropout)),
        )
        for width, out, count, place in _places(widths, heads, last_heads)
    )


def stack_b(
    conv: MakeConv,
    in_dim: int,
    dim: int,
    out_dim: int,
    *,
    layers: int,
    heads: int,
    dropout: float = 0.0,
    first_dropout: float = 0.0,
) -> Network:
    """h ← h + conv(a),  a = dropout(ReLU(BatchNorm(h))), and in the end W a + b: proteins

    The first layer is conv(dropout(ReLU(W x + b))). Each number h is passed on before its norm,
    so a layer's norm stands before the next layer's conv, and the last one's before the output.
    All layers have all heads.
    """

    def normed(*rest: nn.Module) -> nn.Sequential:
        return nn.Sequential(nn.BatchNorm1d(dim), nn.ReLU(), Dropout(dropout), *rest)

    def layer(number: int) -> Layer:
        made = conv(dim, dim, heads)
        for weight in made.parameters():  # as the authors' DGL layers begin; biases are one axis
            if weight.dim() > 1:
                nn.init.xavier_normal_(weight, gain=math.sqrt(2))
        first = nn.Sequential(nn.Linear(in_dim, dim), nn.ReLU(), Dropout(first_dropout))
        return Layer(
            made,
            before=normed() if number else first,
            skip=nn.Identity() if number else None,
            after=normed(nn.Linear(dim, out_dim)) if number == layers - 1 else None,
        )

    return Network(layer(number) for number in range(layers))


def stack_d(
    conv: MakeConv,
    widths: Sequence[int],
    *,
    heads: int,
    last_heads: int = 1,
    dropout: float = 0.0,
    residual: bool = False,
) -> Network:
    """x ← ELU(conv(dropout(x)) + W x), and conv(dropout(x)) + W x in the last layer: PubMed

    W is the identity where the widths are equal; without `residual` the term is left out.
    """
    layers = []
    for width, out, count, place in _places(widths, heads, last_heads):
        skip = nn.Identity() if width == out else Linear(width, out, bias=False)
        layers.append(
            Layer(
                conv(width, out, count),
                before=Dropout(dropout),
                skip=skip if residual else None,
                after=None if place == "last" else nn.ELU(),
            )
        )
    return Network(layers)


def make_network(
    mechanism: str,
    in_dim: int,
    out_dim: int,
    *,
    dim: int = 64,
    heads: int = 8,
    layers: int = 2,
    dropout: float = 0.5,
    attention_dropout: float = 0.0,
    feature_dropout: float = 0.0,
    skip: bool = True,
    norm: bool = True,
) -> Network:
    """x ← dropout(ReLU(LayerNorm(conv(x) + W x))), and conv(x) + W x in the last layer

    Layers of `dim` channels in `heads` heads side by side; the last has one head.
    """
    conv = make_conv(mechanism, bias=True, share_weights=False, dropout=attention_dropout)
    made = []
    for width, out, count, place in _places([in_dim, *[dim] * (layers - 1), out_dim], heads, 1):
        rest: list[nn.Module] = [nn.LayerNorm(out)] if norm else []
        is_last = place == "last"
        made.append(
            Layer(
                conv(width, out, count),
                before=Dropout(feature_dropout) if not made else None,
                skip=Linear(width, out, bias=False) if skip else None,
                after=None if is_last else nn.Sequential(*rest, nn.ReLU(), Dropout(dropout)),
            )
        )
    return Network(made)


def _places(
    widths: Sequence[int], heads: int, last_heads: int
) -> Iterable[tuple[int, int, int, str]]:
    """Of each layer: widths in and out, heads, and whether it is first, middle or last."""
    count = len(widths) - 1
    for number, (width, out) in enumerate(pairwise(widths)):
        is_last = number == count - 1
        place = "last" if is_last else "middle" if number else "first"
        yield width, out, last_heads if is_last else heads, place


def make_conv(
    mechanism: str,
    *,
    bias: bool = False,
    share_weights: bool = True,
    dropout: float = 0.0,
    source: Literal["dynagat", "pyg"] = "dynagat",
) -> MakeConv:
    """What makes a mechanism's layers, all without loops of their own: those are the graph's.

    Args:
        share_weights: one projection for query and key in GATv2, and in DPGAT.
        dropout: of attention weights.
        source: whose layers; PyG has no DPGAT, and its GCN knows nothing of parts of a graph.
    """
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ValueError(f"mechanism must be one of {known}, but is {mechanism!r}")
    if source == "pyg" and mechanism in ("dpgat", "gcn"):
        raise ValueError(f"source=pyg has layers for gat, gatv2, gin, sage, not for {mechanism!r}")
    if mechanism == "gcn":
        return lambda width, out, heads: GCNConv(width, out)
    if mechanism in BASELINES:
        return make_gin if mechanism == "gin" else make_sage
    options: dict[str, Any] = {"add_self_loops": False, "bias": bias, "dropout": dropout}
    if mechanism != "gat":
        options["share_weights"] = share_weights

    def conv(width: int, out: int, heads: int) -> nn.Module:
        if out % heads:
            raise ValueError(f"heads must divide the width {out} of a layer, but are {heads}")
        if source == "pyg":
            return make_pyg(mechanism, width, out // heads, heads, options)
        return ATTENTION[mechanism](width, out // heads, heads=heads, **options)

    return conv


def degrees(graph: Graph) -> Tensor:
    """[num_queries] int32: how many keys each query has."""
    return graph.rowptr.diff()
