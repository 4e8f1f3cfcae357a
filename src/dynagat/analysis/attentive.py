"""how_attentive: does each head of a model attend, and does its ranking depend on the query?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from dynagat.analysis.agreement import Pairs, agreement, find_pairs
from dynagat.analysis.calling import evaluating, has_ids, labels_of, parts, run
from dynagat.analysis.capture import Attention, capture
from dynagat.analysis.contents import distinct
from dynagat.analysis.focus import Mass, alike, mass_by_relation, mass_on, sharpness
from dynagat.analysis.interaction import interaction
from dynagat.analysis.order import Comparisons, explained, find_comparisons
from dynagat.analysis.resample import NOTHING, Estimate, Resampling
from dynagat.analysis.rows import Rows, rows_of
from dynagat.analysis.selection import Selection, selectable, selection
from dynagat.analysis.subset import subset
from dynagat.analysis.table import LayerAttention
from dynagat.analysis.text_table import text_table
from dynagat.analysis.verdict import Verdict, judge_focus, judge_ranking

MAX_RANKED_KEYS = 20  # keys of a ranking that to_dict contains
MAX_RELATIONS = 8  # as columns of a table
FEW_CONTENTS = 10  # of queries or keys: a note says so if there are fewer

COLUMNS = ("layer", "head", "weighted agreement", "pairs", "agreement τ", "same choice",
           "one ranking", "(chance)", "selected keys", "interaction", "neighbours", "attends?",
           "ranking")  # fmt: skip


@dataclass(frozen=True)
class Head:
    """The measurements of one head; docs/microscope.md explains each number."""

    layer: str
    kind: str  # the layer's class
    head: int
    attends: Verdict  # attends or uniform
    ranking: Verdict  # static, mixed or dynamic; or not enough to tell
    weighted_agreement: Estimate  # of two queries on the order of the keys they share, by weight
    pairs: int  # effective number of pairs of queries behind it
    agreement: Estimate  # mean Kendall's τ of two queries over the keys they share
    same_choice: Estimate  # fraction of such pairs that rank the same key first
    explained: Estimate  # fraction of comparisons that one ranking of all keys explains
    by_chance: float  # `explained` for random scores on this graph
    selection: Selection
    interaction: Estimate  # fraction of the scores' variance due to neither query nor key alone
    entropy: Estimate  # relative to uniform weights
    effective: Estimate  # effective number of neighbours
    uniformity: Estimate  # effective number of neighbours / degree: 1 if uniform
    degree: float  # mean degree of queries with at least two keys; nan if there are none
    self_loops: Mass | None  # None without self-loops
    same_label: Mass | None  # among edges that are not self-loops; None without labels
    noise: Mass | None  # None if no noise edges were given
    alike: Estimate  # mean τ with the layer's other heads; nan if there are none
    by_relation: tuple[Mass, ...]  # attention on each relation; empty if there is only one

    def cells(self) -> tuple[str, ...]:
        """One text for each of COLUMNS; of most estimates without their interval."""
        return (
            self.layer or self.kind,
            str(self.head),
            str(self.weighted_agreement),
            f"{self.pairs:,}",
            str(self.agreement).split(" ")[0],
            str(self.same_choice).split(" ")[0],
            str(self.explained).split(" ")[0],
            f"{self.by_chance:.2f}",
            f"{self.selection.selected:,} of {self.selection.selectable:,}",
            str(self.interaction).split(" ")[0],
            f"{self.effective.value:.1f} of {self.degree:.1f}",
            str(self.attends),
            str(self.ranking),
        )


@dataclass(frozen=True, eq=False)
class Layer:
    """The heads of a layer, and what is measured for the layer as a whole."""

    name: str
    kind: str
    heads: tuple[Head, ...]
    num_queries: int
    num_keys: int
    num_edges: int
    analysed_queries: int  # fewer than num_queries in a large graph
    analysed_pairs: int  # pairs of analysed queries whose rankings were compared
    is_exact: bool  # False if measured on a sample of queries, pairs or comparisons
    seed: int  # of the samples
    query_contents: int | None  # distinct contents of the queries; None if unknown
    key_contents: int | None
    one_ranking: Tensor  # [K, H]: the keys in each head's one ranking, best first
    alike: Mapping[tuple[int, int], Estimate]  # τ between two heads' rankings
    views: Sequence[LayerAttention]  # the attention of the analysed queries, by call
    relations: tuple[str, ...] = ()  # names of the relations, if there are several

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the verdicts: a sample of queries, few distinct contents."""
        notes = []
        if self.analysed_queries < self.num_queries:
            notes.append(
                f"analysed on a random sample of {self.analysed_queries:,} of"
                f" {self.num_queries:,} queries (seed {self.seed})"
            )
        for noun, count in (("queries", self.query_contents), ("keys", self.key_contents)):
            if count is not None and count < FEW_CONTENTS:
                contents = "the same content" if count == 1 else f"only {count} distinct contents"
                notes.append(f"the {noun} have {contents}, so the ranking may differ for others")
        return tuple(notes)


@dataclass(frozen=True, eq=False)
class Attentiveness:
    """Result of `how_attentive`: print it, or use `heads`, `layers` and `attention`."""

    layers: tuple[Layer, ...]
    attention: Attention  # the captured attention; in a large graph, of the sampled queries

    @property
    def heads(self) -> tuple[Head, ...]:
        return tuple(head for layer in self.layers for head in layer.heads)

    @property
    def notes(self) -> list[str]:
        """What limits the verdicts, with the names of the layers."""
        layers: dict[str, list[str]] = {}
        for layer in self.layers:
            for note in layer.notes:
                layers.setdefault(note, []).append(layer.name or layer.kind)
        return [f"{', '.join(names)}: {note}." for note, names in layers.items()]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON; None where nothing could be measured."""
        return {
            "layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "queries": layer.num_queries,
                    "keys": layer.num_keys,
                    "edges": layer.num_edges,
                    "analysed_queries": layer.analysed_queries,
                    "analysed_pairs": layer.analysed_pairs,
                    "exact": layer.is_exact,
                    "seed": layer.seed,
                    "query_contents": layer.query_contents,
                    "key_contents": layer.key_contents,
                    "notes": list(layer.notes),
                    "relations": list(layer.relations),
                    "heads": [asdict(head, dict_factory=_plain) for head in layer.heads],
                    "one_ranking": layer.one_ranking[:MAX_RANKED_KEYS].T.tolist(),  # per head
                }
                for layer in self.layers
            ]
        }

    def __str__(self) -> str:
        """A table with one line per head; attention by relation and notes on layers, if any."""
        table = text_table([COLUMNS, *(head.cells() for head in self.heads)])
        return "\n".join([table, *self._relation_tables(), *self.notes])

    def _relation_tables(self) -> Iterator[str]:
        """One line per head, for the layers with the same relations; or one line per relation."""
        title = "\nAttention on each relation; in brackets, with uniform weights:\n"
        for names in dict.fromkeys(layer.relations for layer in self.layers if layer.relations):
            layers = [layer for layer in self.layers if layer.relations == names]
            if len(names) > MAX_RELATIONS:
                for layer in layers:
                    columns = [
                        (str(each.head), *map(str, each.by_relation)) for each in layer.heads
                    ]
                    rows = zip(("relation \\ head", *names), *columns, strict=True)
                    yield f"{title}{layer.name or layer.kind}\n{text_table([*rows])}"
                continue
            heads = [head for layer in layers for head in layer.heads]
            cells = [
                (head.layer or head.kind, str(head.head), *map(str, head.by_relation))
                for head in heads
            ]
            yield title + text_table([("layer", "head", *names), *cells])


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict with None instead of nan and lists instead of tuples, as read back from JSON."""
    lists = [(name, list(value) if isinstance(value, tuple) else value) for name, value in items]
    return {name: None if value != value else value for name, value in lists}


def how_attentive(
    model: nn.Module,
    data: Any,
    *,
    labels: Tensor | None = None,
    noise: Tensor | None = None,
    relations: Sequence[str] | None = None,
    call: Callable[[nn.Module, Any], Any] | None = None,
    seed: int = 0,
) -> Attentiveness:
    """Run the model once in evaluation mode and measure every attention head.

    Args:
        model: any module with attention layers of dynagat or PyG inside.
        data: the model's input: a PyG `Data`, `Batch` or `HeteroData`, whose attributes are passed
            by the names of the model's parameters; a tuple or a tensor, passed by position; a dict,
            passed by name; or a loader that yields these, in which case the model is run on each.
        labels: class of each node, used to find same-label edges. Default: `data.y` if it holds
            one class per node.
        noise: [E], whether each edge is a noise edge.
        relations: names of the relations. Default: "relation 0" and so on.
        call: how to run the model, `call(model, data)`, if none of the above fits.
        seed: random seed for sampling and resampling.
    """
    with capture(model, sample=seed) as attention, evaluating(model), torch.no_grad():
        for index, part in enumerate(parts(data)):
            if index and not has_ids(part) and (labels is not None or noise is not None):
                raise ValueError(
                    "labels and noise refer to one graph, so its batches need n_id and e_id"
                )
            attention.on(part if has_ids(part) else None)
            (call or run)(model, part)
    labels = labels_of(data) if labels is None else labels
    return measure(attention, labels=labels, noise=noise, relations=relations, seed=seed)


def analyse(model: nn.Module, data: Any, **marks: Any) -> dict[str, Any]:
    """`how_attentive` as plain numbers and strings for a record; or an error message."""
    try:
        return how_attentive(model, data, **marks).to_dict()
    except ValueError as error:
        return {"refused": str(error)}


def measure(
    attention: Attention,
    *,
    labels: Tensor | None = None,
    noise: Tensor | None = None,
    relations: Sequence[str] | None = None,
    seed: int = 0,
) -> Attentiveness:
    """`how_attentive` for attention that was captured earlier."""
    attention.check()
    names = dict.fromkeys(view.layer for view in attention.seen)
    samples: list[_Sample] = []
    by_layer = [[view for view in attention.seen if view.layer == name] for name in names]
    layers = tuple(
        replace(
            _layer(views, labels, noise, samples, seed),
            relations=relation_names(views[0], relations),
        )
        for views in by_layer
    )
    if all(math.isnan(head.degree) for layer in layers for head in layer.heads):
        names = ", ".join(layer.name or layer.kind for layer in layers)
        raise ValueError(f"there is nothing to compare in {names}: no query has more than one key")
    return Attentiveness(layers, attention)


def relation_names(view: LayerAttention, given: Sequence[str] | None) -> tuple[str, ...]:
    """The names of a layer's relations; empty if it has only one."""
    count = view.num_relations
    if view.relation is None:
        return ()
    if given is not None and len(given) != count:
        raise ValueError(
            f"relations must have {count} names, because layer {view.layer or view.kind!r} has"
            f" {count} relations, but has {len(given)}"
        )
    return tuple(given or (f"relation {r}" for r in range(count)))


@dataclass(frozen=True, eq=False)
class _Sample:
    """What depends on the graph alone, so that layers on the same graph share it."""

    rows: Rows
    pairs: Pairs
    comparisons: Comparisons
    resampling: Resampling
    by_chance: float
    selectable: int


def _sample(rows: Rows, known: list[_Sample], seed: int) -> _Sample:
    for sample in known:
        same = zip((sample.rows.rowptr, sample.rows.key), (rows.rowptr, rows.key), strict=True)
        if all(torch.equal(*each) for each in same):
            return sample
    resampling, comparisons = Resampling(rows.num_queries, seed), find_comparisons(rows, seed)
    chance = _by_chance(rows, comparisons, resampling, seed)
    pairs = find_pairs(rows, seed)
    known.append(_Sample(rows, pairs, comparisons, resampling, chance, selectable(rows)))
    return known[-1]


def _layer(
    views: Sequence[LayerAttention],
    labels: Tensor | None,
    noise: Tensor | None,
    samples: list[_Sample],
    seed: int,
) -> Layer:
    _check(views)
    every, views = views, subset(views, seed)
    extents = [view.extent for view in every]
    is_whole = views is every and all(view.whole is None for view in every)
    rows = rows_of(views)
    sample = _sample(rows, samples, seed)
    pairs, comparisons, resampling = sample.pairs, sample.comparisons, sample.resampling
    agreed = agreement(rows, pairs, resampling)
    query_contents = distinct([view.query_codes for view in views])
    inner, effects = interaction(rows, resampling)
    predicted, positions = explained(rows, comparisons, effects, resampling)
    picked = selection(rows, sample.selectable, resampling)
    sharp = sharpness(rows, resampling)
    between = alike(rows, comparisons, resampling)
    loops, same, marked = masses(views, labels, noise, resampling)
    by_relation = mass_by_relation(views, resampling)
    heads = tuple(
        Head(
            layer=views[0].layer,
            kind=views[0].kind,
            head=h,
            attends=judge_focus(sharp.uniformity[h]),
            ranking=judge_ranking(agreed.weighted[h], agreed.num_pairs[h], query_contents),
            weighted_agreement=agreed.weighted[h],
            pairs=agreed.num_pairs[h],
            agreement=agreed.tau[h],
            same_choice=agreed.same_choice[h],
            explained=predicted[h],
            by_chance=sample.by_chance,
            selection=picked[h],
            interaction=inner[h],
            entropy=sharp.entropy[h],
            effective=sharp.effective[h],
            uniformity=sharp.uniformity[h],
            degree=sharp.degree,
            self_loops=loops[h],
            same_label=same[h],
            noise=marked[h],
            alike=_mean([each for pair, each in between.items() if h in pair]),
            by_relation=by_relation[h],
        )
        for h in range(rows.num_heads)
    )
    return Layer(
        name=views[0].layer,
        kind=views[0].kind,
        heads=heads,
        num_queries=sum(each.queries for each in extents),
        num_keys=sum(each.keys for each in extents),
        num_edges=sum(each.edges for each in extents),
        analysed_queries=rows.num_queries,
        analysed_pairs=len(pairs),
        is_exact=is_whole and pairs.is_exact and comparisons.is_exact,
        seed=seed,
        query_contents=query_contents,
        key_contents=distinct([view.key_codes for view in views]),
        one_ranking=rows.key_id[positions.argsort(0)],
        alike=between,
        views=views,
    )


def _check(views: Sequence[LayerAttention]) -> None:
    name = views[0].layer or views[0].kind
    if len({view.num_heads for view in views}) > 1:
        raise ValueError(f"layer {name!r} must have the same number of heads in every call")
    for view in views:
        if _is_finite(view):
            continue
        bad = ~view.weight.isfinite() | (view.ranked.isnan())
        if bad.any():
            head = int(bad.any(0).nonzero()[0])
            count = f"{int(bad[:, head].sum())} of {len(bad)}"
            raise ValueError(f"layer {name!r}, head {head}: {count} weights are nan or infinite")


def _is_finite(view: LayerAttention) -> bool:
    """Are all weights finite, and is no score nan? May also be False for very large scores.

    Sums are several times as fast as masks, and need no memory of the same size.
    """
    weights = view.weight.sum(dtype=torch.float32)
    scores = weights if view.score is None else view.score.sum(dtype=torch.float32)
    return bool(weights.isfinite()) and not bool(scores.isnan())


def _by_chance(rows: Rows, comparisons: Comparisons, resampling: Resampling, seed: int) -> float:
    """`explained` for random scores: it grows when queries share fewer keys."""
    generator = torch.Generator().manual_seed(seed)
    score = torch.rand(len(rows.key), 1, generator=generator)
    random = replace(rows, score=score, weight=score)
    effects = torch.zeros(rows.num_keys, 1).index_add(0, rows.key, score - 0.5)
    return explained(random, comparisons, effects, resampling)[0][0].value


def masses(
    views: Sequence[LayerAttention],
    labels: Tensor | None,
    noise: Tensor | None,
    resampling: Resampling,
) -> tuple[Sequence[Mass | None], Sequence[Mass | None], Sequence[Mass | None]]:
    """Attention on self-loops, on same-label edges (self-loops left out), and on noise edges."""
    nothing = [None] * views[0].num_heads
    loops = [view.is_self_loop.cpu() for view in views]
    every = [torch.ones_like(each) for each in loops]
    others = [~each for each in loops]
    on_loops = mass_on(views, loops, every, resampling) if any(map(torch.any, loops)) else nothing
    on_same = on_noise = nothing
    if labels is not None:
        same = [_at(labels, v.query, "labels") == _at(labels, v.key, "labels") for v in views]
        on_same = mass_on(views, same, others, resampling)
    if noise is not None:
        marks = [_at(noise.bool(), v.edge_id.clamp_min(0), "noise") & (v.edge_id.cpu() >= 0)
                 for v in views]  # fmt: skip
        on_noise = mass_on(views, marks, every, resampling)
    return on_loops, on_same, on_noise


def _at(values: Tensor, index: Tensor, name: str) -> Tensor:
    index = index.cpu()
    if values.dim() != 1:
        raise ValueError(f"{name} must be 1-D, but has shape {list(values.shape)}")
    if len(index) and int(index.max()) >= len(values):
        raise ValueError(
            f"{name} has {len(values)} entries, but index {int(index.max())} is needed"
        )
    return values.cpu()[index]


def _mean(estimates: list[Estimate]) -> Estimate:
    known = [each for each in estimates if not math.isnan(each.value)]
    if not known:
        return NOTHING
    count = len(known)
    return Estimate(
        sum(each.value for each in known) / count,
        sum(each.low for each in known) / count,
        sum(each.high for each in known) / count,
    )
