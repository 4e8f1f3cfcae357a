"""The microscope's result in sentences: the answer, the reasons for the verdicts, and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dynagat.analysis.attentive import Attentiveness, Head, Layer
from dynagat.analysis.resample import two_digits
from dynagat.analysis.verdict import (
    ATTENDS,
    DYNAMIC,
    LEAST_MIXED,
    LEAST_STATIC,
    LEAST_UNIFORM,
    MIN_PAIRS,
    MIXED,
    STATIC,
    UNIFORM,
    UNKNOWN,
    Verdict,
)
from dynagat.report.wording import count, listed, predicate

FOCUSES = (ATTENDS, UNIFORM, UNKNOWN)
RANKINGS = (DYNAMIC, MIXED, STATIC, UNKNOWN)
MEANINGS = {
    ATTENDS: "some neighbours get more weight than others",
    UNIFORM: "all neighbours get about the same weight",
    DYNAMIC: "different nodes rank the same neighbours differently",
    MIXED: "nodes rank the same neighbours in similar orders",
    STATIC: "all nodes rank the same neighbours in the same order",
    UNKNOWN: "too few pairs of nodes share neighbours with different weights",
}
STATIC_KINDS = ("GATConv", "FusedGATConv", "HANConv")  # score_ij = LeakyReLU(query_i + key_j)


@dataclass(frozen=True)
class Advice:
    """A paragraph, and code to try."""

    word: str  # the verdict
    title: str
    text: str
    code: str = ""


# Templates: {kinds} are the classes of the layers, {heads} is the number of heads of a layer.
STATIC_BY_CONSTRUCTION = Advice(
    STATIC,
    "static by construction",
    "{kinds} adds a number of the query to a number of the key. Whatever it learns, all queries"
    " rank the keys they share in the same order (Theorem 1 of “How attentive are graph attention"
    " networks?”). If the choice of neighbours should depend on the node, replace the layer, which"
    " is one line of code, and train again.",
    "from dynagat import GATv2Conv  # or torch_geometric.nn\n"
    "conv = GATv2Conv(in_channels, out_channels, heads={heads})",
)
STATIC_BY_DATA = Advice(
    STATIC,
    "static, but not by construction",
    "{kinds} could rank keys differently for each query, but does not on this graph. Perhaps one"
    " ranking fits the data. GAT may be just as good here: compare both on held-out nodes.",
)
PARTLY_DYNAMIC = Advice(
    MIXED,
    "partly dynamic",
    "Queries agree on most of the order of the keys they share, but not on all of it. Untrained"
    " GATv2 layers look like this. If one ranking of the nodes fits the data, GAT may be just as"
    " good: compare both on held-out nodes. If not, more steps, less dropout on attention, or"
    " features that distinguish the queries may help.",
)
NOT_ATTENDING = Advice(
    UNIFORM,
    "attention is not used",
    "All neighbours get nearly the same weight, as in a mean, so GCN or GraphSAGE may be just as"
    " good and cost less. If some neighbours should matter more, train longer, initialise the"
    " attention vector with larger values, reduce its dropout and weight decay, or add node or edge"
    " features that distinguish the neighbours. Untrained models look like this, too.",
)
NOTHING_TO_DO = Advice(
    DYNAMIC,
    "nothing to do",
    "Queries rank the keys they share differently: attention depends on the query, as intended."
    " This does not mean that it selects the neighbours that matter: compare the attention on"
    " same-label edges, noise and self-loops with that of uniform weights.",
)
NOT_COMPARABLE = Advice(
    UNKNOWN,
    "not enough to tell",
    "Static and dynamic attention differ only if queries with different contents share keys, and"
    " give them different weights. Use a graph, or batches, in which at least"
    f" {MIN_PAIRS} pairs of queries do.",
)


def answer(heads: Sequence[Head]) -> str:
    """ "All 8 heads attend: ... 5 of 8 heads are dynamic: ... 3 are static: ..." """
    focuses, rankings = ([getattr(head, axis).word for head in heads]
                         for axis in ("attends", "ranking"))  # fmt: skip
    return f"{_tally(focuses, FOCUSES)} {_tally(rankings, RANKINGS)}"


def _tally(words: Sequence[str], order: Sequence[str]) -> str:
    """How many heads have each word, and what it means; the most frequent word first."""
    counts = sorted(Counter(words).items(), key=lambda item: (-item[1], order.index(item[0])))
    total = len(words)
    subjects = [f"{number:,}" for _, number in counts]
    subjects[0] += f" of {count(total, 'head')}"
    if len(counts) == 1:
        subjects = [{1: "The only head", 2: "Both heads"}.get(total, f"All {total:,} heads")]
    return " ".join(
        f"{subject} {predicate(word, number)}: {MEANINGS[word]}."
        for subject, (word, number) in zip(subjects, counts, strict=True)
    )


def setting(result: Attentiveness) -> str:
    """The model and the graph, and whether the numbers are exact."""
    sizes: dict[tuple[int, int, int], list[Layer]] = {}
    for layer in result.layers:
        sizes.setdefault((layer.num_queries, layer.num_keys, layer.num_edges), []).append(layer)
    parts = [
        f"{_layers(layers)} on {queries:,} {'query' if queries == 1 else 'queries'},"
        f" {count(keys, 'key')} and {count(edges, 'edge')}"
        for (queries, keys, edges), layers in sizes.items()
    ]
    return " ".join([f"{listed(parts)}.", _exactness(result.layers), *result.notes])


def _layers(layers: Sequence[Layer]) -> str:
    kinds = Counter((layer.kind, len(layer.heads)) for layer in layers)
    return listed(
        [
            f"{count(number, 'layer')} of {kind} with {count(heads, 'head')}"
            for (kind, heads), number in kinds.items()
        ]
    )


def _exactness(layers: Sequence[Layer]) -> str:
    pairs = listed(sorted({f"{layer.analysed_pairs:,}" for layer in layers}))
    compared = f"{pairs} pairs of queries that share at least two keys were compared"
    if all(layer.is_exact for layer in layers):
        return (
            f"{compared}, all there are, so the numbers are exact for this graph; the intervals"
            " show how much they could differ for other queries of the same kind."
        )
    sampled = [layer.name or layer.kind for layer in layers if not layer.is_exact]
    where = "" if len(sampled) == len(layers) else f" of {listed(sampled)}"
    return (
        f"{compared}. The numbers{where} are estimates from a random sample (seed"
        f" {layers[0].seed}); the intervals show their uncertainty."
    )


def why(head: Head) -> str:
    """The rules that led to the two verdicts, with their numbers."""
    return f"{_why_focus(head)} {_why_ranking(head)}"


def _why_focus(head: Head) -> str:
    if head.attends.word == UNKNOWN:
        return "No query has two keys."
    share = f"The effective number of neighbours is {head.uniformity.value:.1%}"
    least = f"{LEAST_UNIFORM:.0%}"
    limit = f"at least {least}" if head.attends.word == UNIFORM else f"less than {least}"
    return f"{share} of the degree: {limit}{_unsure(head.attends)}."


def _why_ranking(head: Head) -> str:
    if head.ranking.word == UNKNOWN:
        return _why_unknown(head)
    if head.weighted_agreement.value == 1:
        return f"All of {head.pairs:,} pairs of queries rank the keys they share in the same order."
    limits = {
        STATIC: f"at least {LEAST_STATIC}",
        MIXED: f"between {LEAST_MIXED} and {LEAST_STATIC}",
        DYNAMIC: f"less than {LEAST_MIXED}",
    }
    pairs, limit = f"of {head.pairs:,} pairs of queries", limits[head.ranking.word]
    value = agreement_text(head.weighted_agreement.value)
    return f"The weighted agreement {pairs} is {value}: {limit}{_unsure(head.ranking)}."


def _why_unknown(head: Head) -> str:
    if head.pairs >= MIN_PAIRS:
        return "All queries have the same content, so their rankings can not differ."
    pairs = f"{count(head.pairs, 'pair')} of queries can be compared"
    return f"{pairs}; a verdict on the ranking needs {MIN_PAIRS}."


def _unsure(verdict: Verdict) -> str:
    """That the confidence interval spans a limit."""
    others = " or ".join(verdict.others)
    return f", but the confidence interval includes {others}" if others else ""


def agreement_text(value: float) -> str:
    """Two decimals, or three if two would hide on which side of a limit it is."""
    text = two_digits(value)
    is_limit = text in (f"{LEAST_STATIC:.2f}", f"{LEAST_MIXED:.2f}")
    return (f"{value:.3f}" if is_limit else text).replace("-", "−")


def advise(heads: Sequence[Head]) -> list[Advice]:
    """What the verdicts mean for this model, and what to try. A head may be in two cases."""
    by_ranking = {each: [h for h in heads if h.ranking.word == each] for each in RANKINGS}
    static = by_ranking[STATIC]
    cases = (
        (STATIC_BY_CONSTRUCTION, [h for h in static if h.kind in STATIC_KINDS]),
        (STATIC_BY_DATA, [h for h in static if h.kind not in STATIC_KINDS]),
        (PARTLY_DYNAMIC, by_ranking[MIXED]),
        (NOT_ATTENDING, [h for h in heads if h.attends.word == UNIFORM]),
        (NOTHING_TO_DO, [h for h in by_ranking[DYNAMIC] if h.attends.word == ATTENDS]),
        (NOT_COMPARABLE, by_ranking[UNKNOWN]),
    )
    return [_fill(template, chosen) for template, chosen in cases if chosen]


def _fill(template: Advice, heads: Sequence[Head]) -> Advice:
    num_heads = Counter(head.layer for head in heads).most_common(1)[0][1]
    return replace(
        template,
        title=f"{count(len(heads), 'head')}: {template.title}",
        text=template.text.format(kinds=listed(sorted({head.kind for head in heads}))),
        code=template.code.format(heads=num_heads),
    )
