"""The paper's theorems as certificates: each gives a witness, and running the layer checks it.

A query i *selects* key j if score_ij is strictly above its score of every other key. The layers run
on the complete graph, in which each of the n nodes attends to all n, itself included.
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

SHARPNESS = 10.0  # of `select`: a selected key gets about e^10 / (e^10 + n - 1) of the attention
ROUNDING = 1e4  # a difference of so many units in the last place may be rounding's


@dataclass(frozen=True)
class Certificate:
    """One claim of the paper, whether it was shown, and the numbers that were measured."""

    name: str
    claim: str
    shown: bool
    facts: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.name} ({self.claim}): {'shown' if self.shown else 'NOT shown'}"
        return "\n".join([head, *(f"  {fact}" for fact in self.facts)])


def certificates(seed: int = 0) -> list[Certificate]:
    """All theorems, each on its own draw from the seed; the caller's random state is kept."""
    found = []
    with torch.random.fork_rng(devices=[]):
        for certify in (
            gat_is_static,
            gatv2_is_dynamic,
            sharing_forbids_cycles,
            dpgat_is_dynamic_if_independent,
            dpgat_never_selects_the_middle,
        ):
            torch.manual_seed(seed)
            found.append(certify())
    return found


@torch.no_grad()
def attention(layer: GraphAttention, x: Tensor) -> Tensor:  # [queries, keys, H]
    """α of a layer on the complete graph."""
    n = len(x)
    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n)).T
    _, (edges, alpha) = layer(x, pairs, return_attention_weights=True)
    key, query = edges if layer.flow == "source_to_target" else edges.flip(0)
    weight = alpha.new_empty(n, n, layer.heads)
    weight[query, key] = alpha  # by name, for loops that the layer replaces come last
    return weight


# Theorem 1: GAT is static


@dataclass(frozen=True, eq=False)
class StaticKeys:
    """In head h, every query i ranks the keys ranking[h, 0], ranking[h, 1], ..., the best first."""

    layer: GATConv
    x: Tensor  # [n, in]
    ranking: Tensor  # [H, n]

    @property
    def keys(self) -> Tensor:  # [H]
        """The key that all queries rank first."""
        return self.ranking[:, 0]

    def follows(self) -> Tensor:  # [queries, H]
        """Does this row of α never rise along the ranking? Ties may be made by rounding."""
        weight = attention(self.layer, self.x)
        ranked = weight.gather(1, self.ranking.T.expand(len(weight), -1, -1))
        rest = ranked.flip(1).cummax(1).values.flip(1)  # the largest from this rank on
        return (ranked >= rest * (1 - 8 * torch.finfo(weight.dtype).eps)).all(1)

    def check(self) -> bool:
        everyone = torch.arange(len(self.x)).expand_as(self.ranking)
        return torch.equal(self.ranking.sort().values, everyone) and bool(self.follows().all())


def static_keys(layer: GATConv, x: Tensor) -> StaticKeys:
    """argsort_j a_srcᵀ W x_j: the order of the keys in LeakyReLU(a_dstᵀ W x_i + a_srcᵀ W x_j)

    For LeakyReLU and softmax are monotonic, and x_i adds the same to the scores of all keys.
    """
    _check_layer(layer, GATConv)
    if layer.negative_slope < 0:
        slope = layer.negative_slope
        raise ValueError(f"layer must have a LeakyReLU that never falls, but its slope is {slope}")
    _check_nodes(x)
    with torch.no_grad():
        _, key_score, _ = layer.project(x, x)  # [n, H]
    return StaticKeys(layer, x, key_score.argsort(dim=0, descending=True, stable=True).T)


def gat_is_static() -> Certificate:
    """Theorem 1 on random layers and nodes; beside it GATv2, drawn alike."""
    witnesses, most = [], 0
    for n, d in ((2, 1), (8, 4), (64, 1), (64, 16)):
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(n, d, dtype=dtype)
            witnesses.append(static_keys(GATConv(d, 8, heads=16).to(dtype), x))
            best = attention(GATv2Conv(d, 8, heads=16).to(dtype), x).argmax(1)  # [queries, H]
            most = max(most, *(len(keys.unique()) for keys in best.T))
    follows = torch.cat([witness.follows().flatten() for witness in witnesses])
    num_heads = sum(witness.layer.heads for witness in witnesses)
    facts = (
        f"{int(follows.sum())} of {len(follows)} queries, those of {num_heads} random heads, rank "
        "all keys in their head's order, that of a_srcᵀ W x_j",
        f"GATv2 drawn alike: the queries of one head rank up to {most} different keys first",
    )
    shown = all(witness.check() for witness in witnesses)
    return Certificate("Theorem 1", "GAT is static", shown, facts)


# Theorem 2: GATv2 is dynamic


@dataclass(frozen=True, eq=False)
class Selection:
    """With this layer of one head, each query i selects key mapping[i]."""

    layer: GATv2Conv | DPGATConv
    x: Tensor  # [n, in]
    mapping: Tensor  # [n]

    def margins(self) -> Tensor:  # [n]
        """score_i,φ(i) - max of score_ij over other j, read off the layer's α as log α - log α"""
        weight = attention(self.layer, self.x)[..., 0]
        chosen = self.mapping[:, None]
        others = weight.scatter(1, chosen, 0.0).amax(1)
        return weight.gather(1, chosen)[:, 0].log() - others.log()

    def check(self) -> bool:
        return bool((self.margins() > 0).all())


def select(x: Tensor, mapping: Sequence[int] | Tensor) -> Selection:
    """score_ij = Σ_c s · hat(M (t_i - t_c) + t_j - t_φ(c)),  hat(p) = max(0, 1 - |p|),  t = x u

    The line u puts the nodes at least 1 apart, and M is 1 more than max t - min t: then p = 0 for
    i = c, j = φ(c), and |p| ≥ 1 for all other pairs. A hat is three units, whose slopes cancel on
    either side: (1 - slope) hat(p) = LeakyReLU(p + 1) - 2 LeakyReLU(p) + LeakyReLU(p - 1). So a
    GATv2 layer of 3n channels selects any mapping φ of any n distinct nodes.
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
    """The u, of many tried, along which rounding blurs x u least; in units of the smallest gap."""
    n, d = x.shape
    generator = torch.Generator().manual_seed(0)
    orders = torch.rand(n, 128, dtype=x.dtype, generator=generator).argsort(0).to(x.dtype)
    evenly = torch.linalg.pinv(x - x.mean(0)) @ orders  # these put independent nodes at 0 .. n - 1
    normal = torch.randn(d, 128, dtype=x.dtype, generator=generator)
    lines = torch.cat([torch.eye(d, dtype=x.dtype), normal, evenly], 1)  # [d, lines]
    t = (x @ lines).sort(0).values
    gap, spread = t.diff(dim=0).amin(0), t[-1] - t[0]
    size = (x.abs() @ lines.abs()).amax(0)
    blur = torch.finfo(x.dtype).eps * (spread / gap) * (size / gap)  # of M t, in gaps
    best = int(blur.nan_to_num(torch.inf).argmin())
    if not blur[best] * 16 * n < 1:  # n hats of three units, each of which rounds p and its sum
        raise ValueError(
            f"x must hold rows that {x.dtype} tells apart along a line, but the closest differ "
            f"by {gap[best] / size[best]:.1g} of their size"
        )
    return lines[:, best] / gap[best]


def gatv2_is_dynamic() -> Certificate:
    """Theorem 2: mappings of all kinds, of nodes near and far, in few and many dimensions."""
    far = [torch.randn(n, d).double() for n, d in ((3, 1), (64, 1), (16, 2), (64, 16))]
    near = [1 + 1e-6 * x[:8] for x in far]
    random = [select(x, mapping) for x in far for mapping in _mappings(len(x))]
    close = [select(x, mapping) for x in near for mapping in _mappings(len(x))]
    channels = max(witness.layer.out_channels for witness in random)
    facts = (
        _selected("random nodes", random),
        _selected("nodes almost equal", close),
        f"with 3n channels, here up to {channels}, and a margin of {SHARPNESS:g} but for rounding",
    )
    shown = all(witness.check() for witness in random + close)
    return Certificate("Theorem 2", "GATv2 is dynamic", shown, facts)


def _mappings(n: int) -> list[Tensor]:
    """Anything, everyone to one, a cycle, a permutation, everyone to itself."""
    node = torch.arange(n)
    return [torch.randint(n, (n,)), node * 0 + n // 2, node.roll(-1), torch.randperm(n), node]


def _selected(what: str, witnesses: Sequence[Selection]) -> str:
    count = sum(witness.check() for witness in witnesses)
    least = min(float(witness.margins().min()) for witness in witnesses)
    n, d = (max(witness.x.shape[axis] for witness in witnesses) for axis in (0, 1))
    closest = min(float(torch.pdist(w.x).min() / w.x.norm(dim=1).max()) for w in witnesses)
    return (
        f"{what} (n to {n}, d to {d}, distances from {closest:.1g} of |x|): {count} of "
        f"{len(witnesses)} mappings selected, smallest margin {least:.4g}"
    )


# The remark: shared weights


def cycle_margins(layer: GATv2Conv, x: Tensor) -> Tensor:  # [3, H]
    """e_12 - e_13, e_23 - e_21, e_31 - e_32: by how much 1, 2, 3 prefer 2, 3, 1

    If W_r = W_l, with a bias or without, e_ij = aᵀ LeakyReLU(W x_i + W x_j) = e_ji, bit by bit. The
    three then add up to 0, so that the smallest is at most 0: no such layer realises the cycle.
    """
    _check_layer(layer, GATv2Conv)
    _check_nodes(x)
    if len(x) != 3:
        raise ValueError(f"x must hold the three nodes of a cycle, but holds {len(x)}")
    return _along_cycle(scores(layer, x))


def _along_cycle(e: Tensor) -> Tensor:  # [3, 3, H] -> [3, H]
    node = torch.arange(3)
    return e[node, node.roll(-1)] - e[node, node.roll(-2)]


def scores(layer: GATv2Conv, x: Tensor) -> Tensor:  # [queries, keys, H]
    """aᵀ LeakyReLU(W_r x_i + W_l x_j) of all pairs, from the layer's projections."""
    query, key, _ = layer.project(x, x)  # [n, H, C]
    pair = query[:, None] + key
    return (F.leaky_relu(pair, layer.negative_slope) * layer.att).sum(-1)


def search_cycle(
    x: Tensor, *, share_weights: bool, restarts: int = 16, steps: int = 200
) -> GATv2Conv:
    """Gradient ascent on the smallest of a cycle's margins; each head is a restart of its own."""
    layer = GATv2Conv(x.shape[1], 16, heads=restarts, share_weights=share_weights).to(x.dtype)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        (-cycle_margins(layer, x).amin(0).sum()).backward()
        optimizer.step()
    return layer


def sharing_forbids_cycles() -> Certificate:
    """The symmetry on many heads; then a search for the cycle with and without it."""
    layers = [GATv2Conv(4, 8, 64, share_weights=True, bias=b).double() for b in (True, False) * 50]
    triples = torch.randn(len(layers), 3, 4).double()
    tables = [scores(layer, x).detach() for layer, x in zip(layers, triples, strict=True)]
    symmetric = torch.stack([(e == e.transpose(0, 1)).flatten(0, 1).all(0) for e in tables])
    highest = max(float(_along_cycle(e).amin(0).max()) for e in tables)
    shared, cycles_of_shared = _searched(triples[:3], share_weights=True)
    unshared, cycles_of_unshared = _searched(triples[:3], share_weights=False)
    facts = (
        f"{int(symmetric.sum())} of {symmetric.numel()} random shared heads have e_ij = e_ji in "
        f"every bit; the smallest of a cycle's three margins is {highest:.3g} at most",
        f"gradient ascent on it with shared weights: {float(shared.max()):.3g} at best, "
        f"{int(cycles_of_shared.sum())} of {cycles_of_shared.numel()} heads realise the cycle",
        f"gradient ascent on it with unshared weights: {float(unshared.min()):.3g} and more, "
        f"{int(cycles_of_unshared.sum())} of {cycles_of_unshared.numel()} heads realise the cycle",
    )
    impossible = bool(symmetric.all()) and highest <= 0 and bool((shared <= 0).all())
    shown = impossible and not cycles_of_shared.any() and bool(cycles_of_unshared.any(1).all())
    return Certificate("Remark", "GATv2 with shared weights selects no 3-cycle", shown, facts)


def _searched(triples: Tensor, share_weights: bool) -> tuple[Tensor, Tensor]:
    """The best margin of each triple, and the heads whose α, the layer's own, realise the cycle."""
    best, realised = [], []
    for x in triples:
        layer = search_cycle(x, share_weights=share_weights)
        best.append(cycle_margins(layer, x).detach().amin(0).max())
        log = attention(layer, x).log()
        realised.append((_along_cycle(log) > ROUNDING * torch.finfo(x.dtype).eps).all(0))
    return torch.stack(best), torch.stack(realised)  # [triples], [triples, H]


# Theorem 3: DPGAT on independent nodes, and what it can't do on others


def select_by_dot(x: Tensor, mapping: Sequence[int] | Tensor) -> Selection:
    """X = U S Vᵀ, Q = V S⁻¹, K = V S⁻¹ Uᵀ Pᵀ U: (X Q)(X K)ᵀ = U Uᵀ P = P, where P_i,φ(i) = 1

    Divided by √C, C = n, it is 1 / √n by which every query selects its key.
    """
    x, mapping = _read_nodes(x), _read_mapping(mapping, len(x))
    n, d = x.shape
    rank = int(torch.linalg.matrix_rank(x, rtol=16 * n * torch.finfo(x.dtype).eps))
    if rank < n:
        raise ValueError(
            f"x must hold linearly independent rows, but its {n} rows have rank {rank}"
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
    """Theorem 3: mappings of all kinds, of as many independent nodes as there are dimensions."""
    witnesses, errors = [], []
    for n, d in ((3, 3), (3, 8), (16, 16), (64, 80)):
        x = torch.randn(n, d, dtype=torch.float64)
        found = [select_by_dot(x, mapping) for mapping in _mappings(n)]
        errors += [float((w.margins() * n**0.5 - 1).abs().max()) for w in found]
        witnesses += found
    facts = (
        _selected("random nodes, d from n", witnesses),
        f"margins differ from 1 / √n by at most {max(errors):.1g} of it",
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
        """How far the identity is off, as a share of the largest score."""
        query, key, _ = self.layer.project(self.keys, self.queries)
        first, middle, last = torch.einsum("...nhc,...khc->k...nh", query, key)
        place = self.place[..., None, None]
        off = middle - (1 - place) * first - place * last
        return float(off.abs().max() / torch.stack([first, last]).abs().max())

    @torch.no_grad()
    def margins(self) -> Tensor:  # [*, N, H]
        """score of h_λ minus the larger of the others, read off the layer's α"""
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
    """The keys h_0 = first, h_λ = (1 - λ) first + λ last, h_1 = last; queries are any."""
    _check_layer(layer, DPGATConv)
    if layer.add_self_loops:
        raise ValueError("layer must be made with add_self_loops=False, for queries are not keys")
    place = torch.as_tensor(place, dtype=first.dtype).expand(first.shape[:-1])
    outside = place[~((place > 0) & (place < 1))]
    if len(outside):
        raise ValueError(f"place must lie strictly between 0 and 1, but is {outside[0].item():g}")
    middle = torch.lerp(first, last, place[..., None])
    return MiddleKeys(layer, queries, torch.stack([first, middle, last], -2), place)


def dpgat_never_selects_the_middle() -> Certificate:
    """The identity for random Q, K, q and λ, and for the paper's keys; then GATv2 on these."""
    layer = DPGATConv(5, 4, heads=500, add_self_loops=False).double()
    queries, (first, last) = torch.randn(40, 10, 5).double(), torch.randn(2, 40, 5).double()
    places = 0.01 + 0.98 * torch.rand(40).double()
    anywhere = middle_key_bound(layer, queries, first, last, places)
    x = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    layer = DPGATConv(2, 2, heads=5000, add_self_loops=False).double()
    paper = middle_key_bound(layer, x, x[0], x[2], 0.5)
    gatv2 = select(x, [1, 1, 1])
    facts = (
        _never("random Q, K, queries and λ", anywhere),
        _never("keys (1, 0), (1, 1), (1, 2), random Q, K", paper),
        f"GATv2 on these keys: {int((gatv2.margins() > 0).sum())} of {len(x)} queries select the "
        f"middle one, by {float(gatv2.margins().min()):.4g} at least",
    )
    shown = anywhere.check() and paper.check() and gatv2.check()
    return Certificate("Counterexample", "DPGAT selects no key between two others", shown, facts)


def _never(what: str, witness: MiddleKeys) -> str:
    margins = witness.margins()
    return (
        f"{what}: middle key selected {int((margins > 0).sum())} times in {margins.numel()}, "
        f"margin {float(margins.max()):.2g} at most; the identity is off by {witness.error():.1g}"
    )


# At the door


def _blank(kind: type[Any], d: int, channels: int, *, bias: bool) -> Any:
    """A float64 layer to be filled in, made without touching the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        return kind(d, channels, bias=bias, add_self_loops=False, share_weights=False).double()


def _check_layer(layer: GraphAttention, kind: type[GraphAttention]) -> None:
    if not isinstance(layer, kind):
        raise TypeError(f"layer must be a {kind.__name__}, but is a {type(layer).__name__}")
    for name in ("edge_dim", "num_relations"):
        if getattr(layer, name) is not None:
            value = getattr(layer, name)
            raise ValueError(f"layer must be made without {name}, but has {name}={value}")


def _check_nodes(x: Tensor) -> None:
    if x.dim() != 2:
        raise ValueError(f"x must be [n, d], but has shape {list(x.shape)}")
    if not x.isfinite().all():
        raise ValueError(f"x must be finite, but holds {x[~x.isfinite()][0].item()}")


def _read_nodes(x: Tensor) -> Tensor:
    """x in float64, if it holds two nodes or more, all distinct."""
    _check_nodes(x)
    if len(x) < 2:
        raise ValueError(f"x must hold at least two rows, but holds {len(x)}")
    equal = (x[:, None] == x).all(-1).triu(1).nonzero().tolist()
    if equal:
        first, second = equal[0]
        raise ValueError(f"x must hold distinct rows, but rows {first} and {second} are equal")
    return x.detach().double()


def _read_mapping(mapping: Sequence[int] | Tensor, n: int) -> Tensor:
    mapping = torch.as_tensor(mapping)
    if mapping.shape != (n,) or mapping.dtype not in (torch.int32, torch.int64):
        kind = f"{list(mapping.shape)} of {mapping.dtype}"
        raise ValueError(f"mapping must be [{n}] of integers, a key for each row, but is {kind}")
    outside = mapping[(mapping < 0) | (mapping >= n)]
    if len(outside):
        raise ValueError(f"mapping must lie in [0, {n}), but holds {outside[0]}")
    return mapping.long()
