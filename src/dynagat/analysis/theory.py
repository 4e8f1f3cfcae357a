"""The paper's theorems as certificates: each has a witness that is checked by running the layer.

A query i *selects* key j if score_ij is strictly higher than its score of every other key. The
layers run on the complete graph, in which each of the n nodes attends to all n nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dynagat.nn import DPGATConv, GATConv, GATv2Conv
from dynagat.nn.core import GraphAttention

SHARPNESS = 10.0  # margin of `select`: a key then gets about e^10 / (e^10 + n - 1) of the attention
ROUNDING = 1e4  # differences up to this many units in the last place may be rounding errors


@dataclass(frozen=True)
class Certificate:
    """A claim of the paper, whether it was shown, and the measured numbers."""

    name: str
    claim: str
    shown: bool
    facts: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.name} ({self.claim}): {'shown' if self.shown else 'NOT shown'}"
        return "\n".join([head, *(f"  {fact}" for fact in self.facts)])


def certificates(seed: int = 0) -> list[Certificate]:
    """All theorems, each started from the seed; the global random state is not changed."""
    result = []
    with torch.random.fork_rng(devices=[]):
        for certify in (
            gat_is_static,
            gatv2_is_dynamic,
            sharing_forbids_cycles,
            dpgat_is_dynamic_if_independent,
            dpgat_never_selects_the_middle,
        ):
            torch.manual_seed(seed)
            result.append(certify())
    return result


@torch.no_grad()
def attention(layer: GraphAttention, x: Tensor) -> Tensor:  # [queries, keys, H]
    """The attention weights of a layer on the complete graph."""
    n = len(x)
    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n)).T
    _, (edges, alpha) = layer(x, pairs, return_attention_weights=True)
    key, query = edges if layer.flow == "source_to_target" else edges.flip(0)
    weight = alpha.new_empty(n, n, layer.heads)
    weight[query, key] = alpha  # by index, because replaced self-loops come last
    return weight


# Theorem 1: GAT is static


@dataclass(frozen=True, eq=False)
class StaticKeys:
    """In head h, every query ranks the keys as ranking[h, 0], ranking[h, 1], ..., best first."""

    layer: GATConv
    x: Tensor  # [n, in]
    ranking: Tensor  # [H, n]

    @property
    def keys(self) -> Tensor:  # [H]
        """The key that all queries rank first."""
        return self.ranking[:, 0]

    def follows(self) -> Tensor:  # [queries, H]
        """Does this row of α never increase along the ranking? Rounding may cause ties."""
        weight = attention(self.layer, self.x)
        ranked = weight.gather(1, self.ranking.T.expand(len(weight), -1, -1))
        rest = ranked.flip(1).cummax(1).values.flip(1)  # the largest from this rank on
        return (ranked >= rest * (1 - 8 * torch.finfo(weight.dtype).eps)).all(1)

    def check(self) -> bool:
        nodes = torch.arange(len(self.x)).expand_as(self.ranking)
        return torch.equal(self.ranking.sort().values, nodes) and bool(self.follows().all())


def static_keys(layer: GATConv, x: Tensor) -> StaticKeys:
    """argsort_j a_srcᵀ W x_j: the order of the keys in LeakyReLU(a_dstᵀ W x_i + a_srcᵀ W x_j)

    LeakyReLU and softmax are monotonic, and x_i adds the same number to the scores of all keys.
    """
    _check_layer(layer, GATConv)
    if layer.negative_slope < 0:
        slope = layer.negative_slope
        raise ValueError(
            f"layer must have a monotonic LeakyReLU, but its negative_slope is {slope}"
        )
    _check_nodes(x)
    with torch.no_grad():
        _, key_score, _ = layer.project(x, x)  # [n, H]
    return StaticKeys(layer, x, key_score.argsort(dim=0, descending=True, stable=True).T)


def gat_is_static() -> Certificate:
    """Theorem 1 on random layers and nodes, compared with GATv2."""
    witnesses, max_keys = [], 0
    for n, d in ((2, 1), (8, 4), (64, 1), (64, 16)):
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(n, d, dtype=dtype)
            witnesses.append(static_keys(GATConv(d, 8, heads=16).to(dtype), x))
            best = attention(GATv2Conv(d, 8, heads=16).to(dtype), x).argmax(1)  # [queries, H]
            max_keys = max(max_keys, *(len(keys.unique()) for keys in best.T))
    follows = torch.cat([witness.follows().flatten() for witness in witnesses])
    num_heads = sum(witness.layer.heads for witness in witnesses)
    facts = (
        f"in {num_heads} random heads, {int(follows.sum())} of {len(follows)} queries rank all "
        "keys in the order of a_srcᵀ W x_j",
        f"in random GATv2 heads, up to {max_keys} different keys are ranked first in one head",
    )
    shown = all(witness.check() for witness in witnesses)
    return Certificate("Theorem 1", "GAT is static", shown, facts)


# Theorem 2: GATv2 is dynamic


@dataclass(frozen=True, eq=False)
class Selection:
    """With this one-head layer, each query i selects key mapping[i]."""

    layer: GATv2Conv | DPGATConv
    x: Tensor  # [n, in]
    mapping: Tensor  # [n]

    def margins(self) -> Tensor:  # [n]
        """score_i,φ(i) - max of score_ij over other j, from the layer's α as log α - log α"""
        weight = attention(self.layer, self.x)[..., 0]
        chosen = self.mapping[:, None]
        others = weight.scatter(1, chosen, 0.0).amax(1)
        return weight.gather(1, chosen)[:, 0].log() - others.log()

    def check(self) -> bool:
        return bool((self.margins() > 0).all())


def select(x: Tensor, mapping: Sequence[int] | Tensor) -> Selection:
    """score_ij = Σ_c s · hat(M (t_i - t_c) + t_j - t_φ(c)),  hat(p) = max(0, 1 - |p|),  t = x u

    Along the line u the nodes are at least 1 apart, and M = max t - min t + 1. Then p = 0 for
    i = c, j = φ(c), and |p| ≥ 1 for all other pairs. A hat is a sum of three units whose slopes
    cancel outside: (1 - slope) hat(p) = LeakyReLU(p + 1) - 2 LeakyReLU(p) + LeakyReLU(p - 1).
    Therefore a GATv2 layer with 3n channels selects any mapping φ of any n distinct nodes.
    """
    x, mapping = _read_nodes(x), _read_mapping(mapping, len(x))
    u = _line(x)
    t = x @ u
    stretch = t.max() - t.min() + 1  # M
    n, d = x.shape
    layer = _blank(GATv2Conv, d, 3 * n, bias=True)
    unit = torch.tensor([1.0, -2.0, 1.0], dtype=x.dtype)
    shift = torch.tensor([1.0, 0.0, -1.0], dtype=x.dtype)
    layer.load_state_dict(
        {
            "lin_l.weight": u.expand(3 * n, d),
            "lin_l.bias": (shift - t[mapping, None]).flatten(),
            "lin_r.weight": stretch * u.expand(3 * n, d),
            "lin_r.bias": -stretch * t.repeat_interleave(3),
            "att": SHARPNESS / (1 - layer.negative_slope) * unit.repeat(n)[None, None],
            "bias": x.new_zeros(3 * n),
        }
    )
    return Selection(layer, x, mapping)


def _line(x: Tensor) -> Tensor:  # [d]
    """Of many directions u, the one with the smallest rounding error of x u, scaled to gaps ≥ 1."""
    n, d = x.shape
    generator = torch.Generator().manual_seed(0)
    orders = torch.rand(n, 128, dtype=x.dtype, generator=generator).argsort(0).to(x.dtype)
    evenly = torch.linalg.pinv(x - x.mean(0)) @ orders  # these map independent nodes to 0 .. n - 1
    normal = torch.randn(d, 128, dtype=x.dtype, generator=generator)
    lines = torch.cat([torch.eye(d, dtype=x.dtype), normal, evenly], 1)  # [d, lines]
    t = (x @ lines).sort(0).values
    gap, length = t.diff(dim=0).amin(0), t[-1] - t[0]
    size = (x.abs() @ lines.abs()).amax(0)
    error = torch.finfo(x.dtype).eps * (length / gap) * (size / gap)  # of M t, relative to the gap
    best = int(error.nan_to_num(torch.inf).argmin())
    if not error[best] * 16 * n < 1:  # n hats of three units, each of which rounds p and its sum
        raise ValueError(
            f"x must have rows that {x.dtype} can distinguish along a line, but the closest differ "
            f"by only {gap[best] / size[best]:.1g} of their size"
        )
    return lines[:, best] / gap[best]


def gatv2_is_dynamic() -> Certificate:
    """Theorem 2: many mappings of near and far nodes, in few and many dimensions."""
    far = [torch.randn(n, d).double() for n, d in ((3, 1), (64, 1), (16, 2), (64, 16))]
    near = [1 + 1e-6 * x[:8] for x in far]
    random = [select(x, mapping) for x in far for mapping in _mappings(len(x))]
    close = [select(x, mapping) for x in near for mapping in _mappings(len(x))]
    channels = max(witness.layer.out_channels for witness in random)
    facts = (
        _describe_selections("random nodes", random),
        _describe_selections("nearly equal nodes", close),
        f"with 3n channels, here up to {channels}; without rounding, every margin is {SHARPNESS:g}",
    )
    shown = all(witness.check() for witness in random + close)
    return Certificate("Theorem 2", "GATv2 is dynamic", shown, facts)


def _mappings(n: int) -> list[Tensor]:
    """Random, all to one node, a cycle, a permutation, the identity."""
    node = torch.arange(n)
    return [torch.randint(n, (n,)), node * 0 + n // 2, node.roll(-1), torch.randperm(n), node]


def _describe_selections(what: str, witnesses: Sequence[Selection]) -> str:
    count = sum(witness.check() for witness in witnesses)
    least = min(float(witness.margins().min()) for witness in witnesses)
    n, d = (max(witness.x.shape[axis] for witness in witnesses) for axis in (0, 1))
    closest = min(float(torch.pdist(w.x).min() / w.x.norm(dim=1).max()) for w in witnesses)
    return (
        f"{what} (n up to {n}, d up to {d}, smallest distance {closest:.1g} of |x|): {count} of "
        f"{len(witnesses)} mappings selected, smallest margin {least:.4g}"
    )


# The remark: shared weights


def cycle_margins(layer: GATv2Conv, x: Tensor) -> Tensor:  # [3, H]
    """e_12 - e_13, e_23 - e_21, e_31 - e_32: how much 1, 2, 3 prefer 2, 3, 1 over the other node

    If W_r = W_l, with or without bias, e_ij = aᵀ LeakyReLU(W x_i + W x_j) = e_ji, bit by bit. Then
    the three sum to 0, so the smallest is at most 0: no such layer realises the cycle.
    """
    _check_layer(layer, GATv2Conv)
    _check_nodes(x)
    if len(x) != 3:
        raise ValueError(f"x must have three rows, the nodes of a cycle, but has {len(x)}")
    return _along_cycle(scores(layer, x))


def _along_cycle(e: Tensor) -> Tensor:  # [3, 3, H] -> [3, H]
    node = torch.arange(3)
    return e[node, node.roll(-1)] - e[node, node.roll(-2)]


def scores(layer: GATv2Conv, x: Tensor) -> Tensor:  # [queries, keys, H]
    """aᵀ LeakyReLU(W_r x_i + W_l x_j) for all pairs, from the layer's projections."""
    query, key, _ = layer.project(x, x)  # [n, H, C]
    pair = query[:, None] + key
    return (F.leaky_relu(pair, layer.negative_slope) * layer.att).sum(-1)


def search_cycle(
    x: Tensor, *, share_weights: bool, restarts: int = 16, steps: int = 200
) -> GATv2Conv:
    """Gradient ascent on the smallest margin of a cycle; each head is a separate restart."""
    layer = GATv2Conv(x.shape[1], 16, heads=restarts, share_weights=share_weights).to(x.dtype)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        (-cycle_margins(layer, x).amin(0).sum()).backward()
        optimizer.step()
    return layer


def sharing_forbids_cycles() -> Certificate:
    """Check the symmetry on many heads; then search for the cycle with and without sharing."""
    layers = [GATv2Conv(4, 8, 64, share_weights=True, bias=b).double() for b in (True, False) * 50]
    triples = torch.randn(len(layers), 3, 4).double()
    tables = [scores(layer, x).detach() for layer, x in zip(layers, triples, strict=True)]
    symmetric = torch.stack([(e == e.transpose(0, 1)).flatten(0, 1).all(0) for e in tables])
    highest = max(float(_along_cycle(e).amin(0).max()) for e in tables)
    shared, cycles_of_shared = _search_cycles(triples[:3], share_weights=True)
    unshared, cycles_of_unshared = _search_cycles(triples[:3], share_weights=False)
    facts = (
        f"{int(symmetric.sum())} of {symmetric.numel()} random heads with shared weights have "
        f"e_ij = e_ji exactly; the smallest of a cycle's three margins is at most {highest:.3g}",
        f"gradient ascent on that margin with shared weights reaches {float(shared.max()):.3g}; "
        f"{int(cycles_of_shared.sum())} of {cycles_of_shared.numel()} heads realise the cycle",
        f"with unshared weights it reaches at least {float(unshared.min()):.3g}; "
        f"{int(cycles_of_unshared.sum())} of {cycles_of_unshared.numel()} heads realise the cycle",
    )
    impossible = bool(symmetric.all()) and highest <= 0 and bool((shared <= 0).all())
    shown = impossible and not cycles_of_shared.any() and bool(cycles_of_unshared.any(1).all())
    return Certificate("Remark", "GATv2 with shared weights selects no 3-cycle", shown, facts)


def _search_cycles(triples: Tensor, share_weights: bool) -> tuple[Tensor, Tensor]:
    """The best margin of each triple, and the heads whose attention weights realise the cycle."""
    best, realised = [], []
    for x in triples:
        layer = search_cycle(x, share_weights=share_weights)
        best.append(cycle_margins(layer, x).detach().amin(0).max())
        log = attention(layer, x).log()
        realised.append((_along_cycle(log) > ROUNDING * torch.finfo(x.dtype).eps).all(0))
    return torch.stack(best), torch.stack(realised)  # [triples], [triples, H]


# Theorem 3: what DPGAT can do on independent nodes, and what it can't do on others


def select_by_dot(x: Tensor, mapping: Sequence[int] | Tensor) -> Selection:
    """X = U S Vᵀ, Q = V S⁻¹, K = V S⁻¹ Uᵀ Pᵀ U: (X Q)(X K)ᵀ = U Uᵀ P = P, where P_i,φ(i) = 1

    After the division by √C = √n, every query selects its key with the margin 1 / √n.
    """
    x, mapping = _read_nodes(x), _read_mapping(mapping, len(x))
    n, d = x.shape
    rank = int(torch.linalg.matrix_rank(x, rtol=16 * n * torch.finfo(x.dtype).eps))
    if rank < n:
        raise ValueError(
            f"x must have linearly independent rows, but its {n} rows have rank {rank}"
        )
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    chosen = torch.eye(n, dtype=x.dtype)[mapping]  # P
    to_query = vh.T / s
    to_key = to_query @ u.T @ chosen.T @ u
    layer = _blank(DPGATConv, d, n, bias=False)
    weights = {"lin_r": to_query.T, "lin_l": to_key.T, "lin_v": x.new_zeros(n, d)}
    layer.load_state_dict({f"{name}.weight": weight for name, weight in weights.items()})
    return Selection(layer, x, mapping)


def dpgat_is_dynamic_if_independent() -> Certificate:
    """Theorem 3: many mappings of up to d independent nodes in d dimensions."""
    witnesses, errors = [], []
    for n, d in ((3, 3), (3, 8), (16, 16), (64, 80)):
        x = torch.randn(n, d, dtype=torch.float64)
        selections = [select_by_dot(x, mapping) for mapping in _mappings(n)]
        errors += [float((each.margins() * n**0.5 - 1).abs().max()) for each in selections]
        witnesses += selections
    facts = (
        _describe_selections("random nodes, d ≥ n", witnesses),
        f"the relative difference of margins from 1 / √n is at most {max(errors):.1g}",
    )
    shown = all(witness.check() for witness in witnesses) and max(errors) < 1e-6
    return Certificate("Theorem 3", "DPGAT is dynamic on independent nodes", shown, facts)


@dataclass(frozen=True, eq=False)
class MiddleKeys:
    """⟨Q q, K h_λ⟩ = (1 - λ) ⟨Q q, K h_0⟩ + λ ⟨Q q, K h_1⟩, at most the larger: never selected."""

    layer: DPGATConv
    queries: Tensor  # [*, N, in]
    keys: Tensor  # [*, 3, in]: h_0, h_λ, h_1
    place: Tensor  # [*]: λ

    @torch.no_grad()
    def error(self) -> float:
        """The error of the identity, relative to the largest score."""
        query, key, _ = self.layer.project(self.keys, self.queries)
        first, middle, last = torch.einsum("...nhc,...khc->k...nh", query, key)
        place = self.place[..., None, None]
        error = middle - (1 - place) * first - place * last
        return float(error.abs().max() / torch.stack([first, last]).abs().max())

    @torch.no_grad()
    def margins(self) -> Tensor:  # [*, N, H]
        """score of h_λ minus the larger of the others, computed from the layer's α"""
        num_queries = self.queries.shape[-2]
        query, key = torch.cartesian_prod(torch.arange(num_queries), torch.arange(3)).T
        pair, edges = (self.keys, self.queries), torch.stack([key, query])
        _, (_, alpha) = self.layer(pair, edges, return_attention_weights=True)
        first, middle, last = alpha.unflatten(-2, (num_queries, 3)).unbind(-2)
        return middle.log() - torch.maximum(first, last).log()

    def check(self) -> bool:
        """Does the identity hold, and is no margin positive beyond rounding?"""
        rounding = ROUNDING * torch.finfo(self.keys.dtype).eps
        return self.error() <= rounding and bool((self.margins() <= rounding).all())


def middle_key_bound(
    layer: DPGATConv, queries: Tensor, first: Tensor, last: Tensor, place: float | Tensor
) -> MiddleKeys:
    """The keys h_0 = first, h_λ = (1 - λ) first + λ last, h_1 = last, for any queries."""
    _check_layer(layer, DPGATConv)
    if layer.add_self_loops:
        raise ValueError("layer must have add_self_loops=False, because queries are not keys")
    place = torch.as_tensor(place, dtype=first.dtype).expand(first.shape[:-1])
    outside = place[~((place > 0) & (place < 1))]
    if len(outside):
        raise ValueError(f"place must lie strictly between 0 and 1, but is {outside[0].item():g}")
    middle = torch.lerp(first, last, place[..., None])
    return MiddleKeys(layer, queries, torch.stack([first, middle, last], -2), place)


def dpgat_never_selects_the_middle() -> Certificate:
    """The identity for random Q, K, q and λ, and for the paper's keys; and GATv2 on the latter."""
    layer = DPGATConv(5, 4, heads=500, add_self_loops=False).double()
    queries, (first, last) = torch.randn(40, 10, 5).double(), torch.randn(2, 40, 5).double()
    places = 0.01 + 0.98 * torch.rand(40).double()
    random = middle_key_bound(layer, queries, first, last, places)
    x = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    layer = DPGATConv(2, 2, heads=5000, add_self_loops=False).double()
    paper = middle_key_bound(layer, x, x[0], x[2], 0.5)
    gatv2 = select(x, [1, 1, 1])
    facts = (
        _describe_bound("random Q, K, queries and λ", random),
        _describe_bound("keys (1, 0), (1, 1), (1, 2), random Q, K", paper),
        f"GATv2 on these keys: {int((gatv2.margins() > 0).sum())} of {len(x)} queries select the "
        f"middle one, with a margin of at least {float(gatv2.margins().min()):.4g}",
    )
    shown = random.check() and paper.check() and gatv2.check()
    return Certificate("Counterexample", "DPGAT selects no key between two others", shown, facts)


def _describe_bound(what: str, witness: MiddleKeys) -> str:
    margins = witness.margins()
    return (
        f"{what}: the middle key is selected in {int((margins > 0).sum())} of {margins.numel()} "
        f"cases, the margin is at most {float(margins.max()):.2g}, the error of the identity "
        f"{witness.error():.1g}"
    )


# Checks of arguments


def _blank(kind: type[Any], d: int, channels: int, *, bias: bool) -> Any:
    """A float64 layer whose weights are set later; the global random state is not changed."""
    with torch.random.fork_rng(devices=[]):
        return kind(d, channels, bias=bias, add_self_loops=False, share_weights=False).double()


def _check_layer(layer: GraphAttention, kind: type[GraphAttention]) -> None:
    if not isinstance(layer, kind):
        raise TypeError(f"layer must be a {kind.__name__}, but is a {type(layer).__name__}")
    for name in ("edge_dim", "num_relations"):
        if getattr(layer, name) is not None:
            value = getattr(layer, name)
            raise ValueError(f"layer must have no {name}, but has {name}={value}")


def _check_nodes(x: Tensor) -> None:
    if x.dim() != 2:
        raise ValueError(f"x must be [n, d], but has shape {list(x.shape)}")
    if not x.isfinite().all():
        raise ValueError(f"x must be finite, but contains {x[~x.isfinite()][0].item()}")


def _read_nodes(x: Tensor) -> Tensor:
    """x in float64; it must have at least two rows, all distinct."""
    _check_nodes(x)
    if len(x) < 2:
        raise ValueError(f"x must have at least two rows, but has {len(x)}")
    equal = (x[:, None] == x).all(-1).triu(1).nonzero().tolist()
    if equal:
        first, second = equal[0]
        raise ValueError(f"x must have distinct rows, but rows {first} and {second} are equal")
    return x.detach().double()


def _read_mapping(mapping: Sequence[int] | Tensor, n: int) -> Tensor:
    mapping = torch.as_tensor(mapping)
    if mapping.shape != (n,) or mapping.dtype not in (torch.int32, torch.int64):
        kind = f"{list(mapping.shape)} of {mapping.dtype}"
        raise ValueError(f"mapping must be {n} integers, one key per row, but is {kind}")
    outside = mapping[(mapping < 0) | (mapping >= n)]
    if len(outside):
        raise ValueError(f"mapping must lie in [0, {n}), but contains {outside[0]}")
    return mapping.long()
