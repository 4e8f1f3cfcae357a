"""how_attentive: is the attention of each head of a model static or dynamic, and how much so?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from dynagat.analysis.agreement import Pairs, agreement, find_pairs
from dynagat.analysis.calling import evaluating, has_ids, labels_of, parts, run
from dynagat.analysis.capture import Attention, capture
from dynagat.analysis.focus import Mass, alike, mass_on, sharpness
from dynagat.analysis.interaction import interaction
from dynagat.analysis.order import Comparisons, explained, find_comparisons
from dynagat.analysis.resample import NOTHING, Estimate, Resampling
from dynagat.analysis.rows import Rows, rows_of
from dynagat.analysis.selection import Selection, selectable, selection
from dynagat.analysis.table import LayerAttention
from dynagat.analysis.verdict import UNDECIDED, verdict

TOLD_KEYS = 20  # of a ranking, as plain numbers


@dataclass(frozen=True)
class Head:
    """What was measured of one head; see docs/microscope.md for each number."""

    layer: str
    kind: str  # the layer's class
    head: int
    verdict: str
    agreement: Estimate  # mean Kendall's τ of two queries over the keys they share
    same_choice: Estimate  # share of such pairs that rank the same key first
    explained: Estimate  # share of comparisons that one ranking of all keys explains
    by_chance: float  # the same of a head with random scores, on this graph
    selection: Selection
    interaction: Estimate  # share of the scores' variance that is neither query's nor key's
    entropy: Estimate  # beside that of uniform weights
    effective: Estimate  # neighbours
    degree: float  # mean, of queries with two keys or more; nan if none has
    self_loops: Mass | None  # None where there are none
    same_label: Mass | None  # of edges that are not loops; None without labels
    noise: Mass | None  # None without marks
    alike: Estimate  # mean τ with the layer's other heads; nothing if it has none


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer's heads, and what they share."""

    name: str
    kind: str
    heads: tuple[Head, ...]
    num_queries: int
    num_keys: int
    num_edges: int
    is_exact: bool  # or from a sample of queries, pairs and comparisons
    ranking: Tensor  # [K, H]: keys, the best first, by the one ranking of each head
    alike: Mapping[tuple[int, int], Estimate]  # τ between two heads' rankings


@dataclass(frozen=True, eq=False)
class Attentiveness:
    """The answer of `how_attentive`: `print` it, or look into `heads`, `layers`, `attention`."""

    layers: tuple[Layer, ...]
    attention: Attention  # what was captured

    @property
    def heads(self) -> tuple[Head, ...]:
        return tuple(head for layer in self.layers for head in layer.heads)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON; None where there was nothing to measure."""
        return {
            "layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "queries": layer.num_queries,
                    "keys": layer.num_keys,
                    "edges": layer.num_edges,
                    "exact": layer.is_exact,
                    "heads": [asdict(head, dict_factory=_plain) for head in layer.heads],
                    "ranking": layer.ranking[:TOLD_KEYS].T.tolist(),  # of each head, its start
                }
                for layer in self.layers
            ]
        }

    def __str__(self) -> str:
        from dynagat.analysis.wording import table

        return table(self)


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Without nan, of which JSON knows nothing."""
    return {name: None if value != value else value for name, value in items}


def how_attentive(
    model: nn.Module,
    data: Any,
    *,
    labels: Tensor | None = None,
    noise: Tensor | None = None,
    call: Callable[[nn.Module, Any], Any] | None = None,
    seed: int = 0,
) -> Attentiveness:
    """Run the model once, in evaluation mode, and measure every head.

    Args:
        model: any module with attention layers of dynagat or PyG inside.
        data: what it is run on: a PyG `Data`, `Batch` or `HeteroData`, whose attributes are passed
            by the names of the model's parameters; a tuple or a tensor, passed by position; a dict,
            passed by name; or a loader of such, each of which is run.
        labels: a class for each node, to tell same-label edges; `data.y`, if it is one.
        noise: for each edge, whether it is marked as noise.
        call: how to run the model, `call(model, data)`, where none of the above fits.
        seed: of the samples and resamples.
    """
    with capture(model) as attention, evaluating(model), torch.no_grad():
        for number, part in enumerate(parts(data)):
            if number and not has_ids(part) and (labels is not None or noise is not None):
                raise ValueError(
                    "labels and noise are of one graph: a loader's batches need n_id and e_id"
                )
            attention.on(part if has_ids(part) else None)
            (call or run)(model, part)
    labels = labels_of(data) if labels is None else labels
    return measure(attention, labels=labels, noise=noise, seed=seed)


def look(model: nn.Module, data: Any, **marks: Any) -> dict[str, Any]:
    """`how_attentive` as plain numbers and words, for a record; or why there are none."""
    try:
        return how_attentive(model, data, **marks).to_dict()
    except ValueError as error:
        return {"refused": str(error)}


def measure(
    attention: Attention,
    *,
    labels: Tensor | None = None,
    noise: Tensor | None = None,
    seed: int = 0,
) -> Attentiveness:
    """The same of attention that was captured already."""
    attention.check()
    names = dict.fromkeys(view.layer for view in attention.seen)
    samples: list[_Sample] = []
    layers = tuple(
        _layer(
            [view for view in attention.seen if view.layer == name], labels, noise, samples, seed
        )
        for name in names
    )
    if all(head.verdict == UNDECIDED for layer in layers for head in layer.heads):
        is_single = all(math.isnan(head.degree) for layer in layers for head in layer.heads)
        shared = "no two queries share two keys that they rank apart"
        why = "no query has more than one key" if is_single else shared
        where = ", ".join(layer.name or layer.kind for layer in layers)
        raise ValueError(f"there is nothing to compare in {where}: {why}")
    return Attentiveness(layers, attention)


@dataclass(frozen=True, eq=False)
class _Sample:
    """What is compared in a graph, and what the graph alone decides: the same for all layers."""

    rows: Rows
    pairs: Pairs
    comparisons: Comparisons
    draws: Resampling
    by_chance: float
    selectable: int


def _sample(rows: Rows, known: list[_Sample], seed: int) -> _Sample:
    for sample in known:
        same = zip((sample.rows.rowptr, sample.rows.key), (rows.rowptr, rows.key), strict=True)
        if all(torch.equal(*each) for each in same):
            return sample
    draws, comparisons = Resampling(rows.num_queries, seed), find_comparisons(rows, seed)
    chance = _by_chance(rows, comparisons, draws, seed)
    pairs = find_pairs(rows, seed)
    known.append(_Sample(rows, pairs, comparisons, draws, chance, selectable(rows)))
    return known[-1]


def _layer(
    views: list[LayerAttention],
    labels: Tensor | None,
    noise: Tensor | None,
    samples: list[_Sample],
    seed: int,
) -> Layer:
    _check(views)
    rows = rows_of(views)
    sample = _sample(rows, samples, seed)
    pairs, comparisons, draws = sample.pairs, sample.comparisons, sample.draws
    agreed, chosen = agreement(rows, pairs, draws)
    inner, effects = interaction(rows, draws)
    told, places = explained(rows, comparisons, effects, draws)
    picked = selection(rows, sample.selectable, draws)
    relative, effective, degree = sharpness(rows, draws)
    between = alike(rows, comparisons, draws)
    loops, same, marked = masses(views, labels, noise, draws)
    heads = tuple(
        Head(
            layer=views[0].layer,
            kind=views[0].kind,
            head=h,
            verdict=verdict(agreed[h].value, chosen[h].value, effective[h].value, degree),
            agreement=agreed[h],
            same_choice=chosen[h],
            explained=told[h],
            by_chance=sample.by_chance,
            selection=picked[h],
            interaction=inner[h],
            entropy=relative[h],
            effective=effective[h],
            degree=degree,
            self_loops=loops[h],
            same_label=same[h],
            noise=marked[h],
            alike=_mean([each for pair, each in between.items() if h in pair]),
        )
        for h in range(rows.num_heads)
    )
    return Layer(
        name=views[0].layer,
        kind=views[0].kind,
        heads=heads,
        num_queries=rows.num_queries,
        num_keys=rows.num_keys,
        num_edges=sum(len(view.query) for view in views),
        is_exact=pairs.is_exact and comparisons.is_exact,
        ranking=rows.key_id[places.argsort(0)],
        alike=between,
    )


def _check(views: list[LayerAttention]) -> None:
    name = views[0].layer or views[0].kind
    if len({view.num_heads for view in views}) > 1:
        raise ValueError(f"layer {name!r} had another number of heads in another call")
    for view in views:
        bad = ~view.weight.isfinite() | (view.ranked.isnan())
        if bad.any():
            head = int(bad.any(0).nonzero()[0])
            count = f"{int(bad[:, head].sum())} of {len(bad)}"
            raise ValueError(f"layer {name!r}, head {head}: {count} weights are not numbers")


def _by_chance(rows: Rows, comparisons: Comparisons, draws: Resampling, seed: int) -> float:
    """What one ranking explains of random scores: the fewer keys are shared, the more."""
    generator = torch.Generator().manual_seed(seed)
    score = torch.rand(len(rows.key), 1, generator=generator)
    random = replace(rows, score=score, weight=score)
    effects = torch.zeros(rows.num_keys, 1).index_add(0, rows.key, score - 0.5)
    return explained(random, comparisons, effects, draws)[0][0].value


def masses(
    views: list[LayerAttention], labels: Tensor | None, noise: Tensor | None, draws: Resampling
) -> tuple[Sequence[Mass | None], Sequence[Mass | None], Sequence[Mass | None]]:
    """On self-loops, on same-label edges among those that are no loops, on noise among all."""
    nothing = [None] * views[0].num_heads
    loops = [view.is_self_loop.cpu() for view in views]
    every = [torch.ones_like(each) for each in loops]
    others = [~each for each in loops]
    on_loops = mass_on(views, loops, every, draws) if any(map(torch.any, loops)) else nothing
    on_same = on_noise = nothing
    if labels is not None:
        same = [_at(labels, v.query, "labels") == _at(labels, v.key, "labels") for v in views]
        on_same = mass_on(views, same, others, draws)
    if noise is not None:
        marks = [_at(noise.bool(), v.edge_id.clamp_min(0), "noise") & (v.edge_id.cpu() >= 0)
                 for v in views]  # fmt: skip
        on_noise = mass_on(views, marks, every, draws)
    return on_loops, on_same, on_noise


def _at(values: Tensor, index: Tensor, name: str) -> Tensor:
    index = index.cpu()
    if values.dim() != 1:
        raise ValueError(f"{name} must have one axis, but has the shape {tuple(values.shape)}")
    if len(index) and int(index.max()) >= len(values):
        raise ValueError(f"{name} has {len(values)} entries, but {int(index.max())} was met")
    return values.cpu()[index]


def _mean(each: list[Estimate]) -> Estimate:
    each = [estimate for estimate in each if not math.isnan(estimate.value)]
    if not each:
        return NOTHING
    count = len(each)
    return Estimate(
        sum(e.value for e in each) / count,
        sum(e.low for e in each) / count,
        sum(e.high for e in each) / count,
    )
