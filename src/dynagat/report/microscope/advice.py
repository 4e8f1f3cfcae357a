"""What the microscope found, in sentences: the answer, why of each head, and what to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dynagat.analysis.attentive import Attentiveness, Head, Layer
from dynagat.analysis.verdict import DYNAMIC, MOSTLY, MOSTLY_STATIC, STATIC, UNDECIDED, UNIFORM
from dynagat.report.wording import count, listed

ORDER = (DYNAMIC, MOSTLY_STATIC, STATIC, UNIFORM, UNDECIDED)
WORDS = {
    DYNAMIC: "dynamic",
    MOSTLY_STATIC: "mostly static",
    STATIC: "static",
    UNIFORM: "uniform",
    UNDECIDED: "undecided",
}
MEANINGS = {
    DYNAMIC: "which neighbour comes first depends on who asks",
    MOSTLY_STATIC: "nodes rank their neighbours nearly alike",
    STATIC: "every node ranks its neighbours alike",
    UNIFORM: "all neighbours weigh about the same, so none is chosen",
    UNDECIDED: "no two queries share two keys that they rank apart",
}
STATIC_KINDS = ("GATConv", "FusedGATConv", "HANConv")  # score_ij = LeakyReLU(query_i + key_j)


@dataclass(frozen=True)
class Advice:
    """A paragraph, and code to try."""

    verdict: str
    title: str
    text: str
    code: str = ""


def answer(heads: Sequence[Head]) -> str:
    """ "5 of 8 heads are dynamic: which neighbour comes first depends on who asks. 3 are ..." """
    counts = Counter(head.verdict for head in heads)
    (first, number), *others = sorted(counts.items(), key=lambda item: (-item[1], _place(item[0])))
    subject = f"{number:,} of {count(len(heads), 'head')}"
    if not others:
        subject = {1: "The one head", 2: "Both heads"}.get(number, f"All {number:,} heads")
    verb = "is" if number == 1 else "are"
    sentence = f"{subject} {verb} {WORDS[first]}: {MEANINGS[first]}."
    rest = [f"{many:,} {'is' if many == 1 else 'are'} {WORDS[each]}: {MEANINGS[each]}"
            for each, many in others]  # fmt: skip
    return " ".join([sentence, *(f"{each}." for each in rest)])


def setting(found: Attentiveness) -> str:
    """The model and the graph, and whether the numbers are exact."""
    sizes: dict[tuple[int, int, int], list[Layer]] = {}
    for layer in found.layers:
        sizes.setdefault((layer.num_queries, layer.num_keys, layer.num_edges), []).append(layer)
    parts = [
        f"{_layers(layers)} on {queries:,} {'query' if queries == 1 else 'queries'},"
        f" {count(keys, 'key')} and {count(edges, 'edge')}"
        for (queries, keys, edges), layers in sizes.items()
    ]
    return f"{listed(parts)}. {_exactness(found.layers)}"


def _layers(layers: Sequence[Layer]) -> str:
    kinds = Counter((layer.kind, len(layer.heads)) for layer in layers)
    kinds = [f"{count(many, 'layer')} of {kind} with {count(heads, 'head')}"
             for (kind, heads), many in kinds.items()]  # fmt: skip
    return listed(kinds)


def _exactness(layers: Sequence[Layer]) -> str:
    if all(layer.is_exact for layer in layers):
        return (
            "All queries that share keys were compared, so the numbers are exact; the intervals say"
            " how far they might lie for other queries of the same kind."
        )
    sampled = [layer.name or layer.kind for layer in layers if not layer.is_exact]
    what = "Each layer" if len(sampled) == len(layers) else f"Of {listed(sampled)}, each"
    return (
        f"{what} was measured on a sample of queries and of their comparisons, so the numbers are"
        " estimates; the intervals say how good."
    )


def why(head: Head) -> str:
    """The rule that gave the head its verdict, with its numbers."""
    agreed, chosen = head.agreement.value, head.same_choice.value
    if head.verdict == STATIC:
        return "No two queries contradict each other on any keys that they share."
    if head.verdict == UNIFORM:
        share = head.effective.value / head.degree
        return f"A query's effective neighbours are {share:.1%} of its neighbours: none stands out."
    if head.verdict == UNDECIDED:
        return "No two queries share two keys that both rank apart."
    if head.verdict == MOSTLY_STATIC:
        return f"Queries contradict each other, but seldom: τ and same choice are {MOSTLY} or more."
    if agreed >= MOSTLY:
        return f"Most orders agree, but two queries put the same key first in only {chosen:.0%}."
    return f"Two queries' rankings of the keys they share agree only with τ = {tau(agreed)}."


def tau(value: float) -> str:
    """Two decimals; three where two would hide on which side of the limit it lies."""
    text = f"{value:.2f}"
    return (f"{value:.3f}" if float(text) == MOSTLY else text).replace("-", "−")


def advise(heads: Sequence[Head]) -> list[Advice]:
    """What each verdict means for this model, and what to try."""
    by_verdict = {each: [h for h in heads if h.verdict == each] for each in ORDER}
    fixed = [h for h in by_verdict[STATIC] if h.kind in STATIC_KINDS]
    by_data = [h for h in by_verdict[STATIC] if h.kind not in STATIC_KINDS]
    makers = (
        (fixed, _static_by_construction),
        (by_data, _static_by_data),
        (by_verdict[MOSTLY_STATIC], _mostly_static),
        (by_verdict[UNIFORM], _uniform),
        (by_verdict[DYNAMIC], _dynamic),
        (by_verdict[UNDECIDED], _undecided),
    )
    return [make(mine) for mine, make in makers if mine]


def _static_by_construction(heads: Sequence[Head]) -> Advice:
    return Advice(
        STATIC,
        f"{_heads(heads)}: static by construction",
        f"{_kinds(heads)} adds a number of the query to a number of the key, so whatever it learns,"
        " all queries that share keys rank them in one order (Theorem 1 of “How attentive are graph"
        " attention networks?”). If a node ought to choose by who it is, swap the layer: one line"
        " of code, then train again.",
        "from dynagat import GATv2Conv  # or torch_geometric.nn\n"
        f"conv = GATv2Conv(in_channels, out_channels, heads={_num_heads(heads)})",
    )


def _static_by_data(heads: Sequence[Head]) -> Advice:
    return Advice(
        STATIC,
        f"{_heads(heads)}: static, but not by construction",
        f"{_kinds(heads)} could rank keys differently for each query, and did not on this graph."
        " Perhaps one global ranking suits the data, or few queries share keys. GAT may do as well"
        " here; compare the two on held-out nodes.",
    )


def _mostly_static(heads: Sequence[Head]) -> Advice:
    return Advice(
        MOSTLY_STATIC,
        f"{_heads(heads)}: mostly static",
        f"{_kinds(heads)} could be dynamic and hardly is. Either the data have one global ranking"
        " of nodes, and GAT may do as well; or training has not got there yet: more steps, less"
        " dropout on attention, or features that tell the queries apart may help.",
    )


def _uniform(heads: Sequence[Head]) -> Advice:
    return Advice(
        UNIFORM,
        f"{_heads(heads)}: attention is not used",
        "All neighbours get nearly the same weight, as in a mean, so a GCN or GraphSAGE may do as"
        " well and costs less. If you expect some neighbours to matter more: train longer, start"
        " the attention vector larger, lessen dropout and weight decay on it, or give it features"
        " (of nodes or edges) that tell the neighbours apart. A model that was never trained looks"
        " like this, too.",
    )


def _dynamic(heads: Sequence[Head]) -> Advice:
    return Advice(
        DYNAMIC,
        f"{_heads(heads)}: nothing to do",
        "Queries rank the keys they share differently: attention depends on who asks, as it is"
        " meant to. Whether it picks the neighbours that matter is another question: compare what"
        " it puts on same-label edges, on noise and on self-loops with uniform weights.",
    )


def _undecided(heads: Sequence[Head]) -> Advice:
    return Advice(
        UNDECIDED,
        f"{_heads(heads)}: nothing to compare",
        "Static and dynamic attention differ only where queries share keys. Measure on a graph, or"
        " on batches, in which they do.",
    )


def _heads(heads: Sequence[Head]) -> str:
    return count(len(heads), "head")


def _kinds(heads: Sequence[Head]) -> str:
    return listed(sorted({head.kind for head in heads}))


def _num_heads(heads: Sequence[Head]) -> int:
    return Counter(head.layer for head in heads).most_common(1)[0][1]


def _place(verdict: str) -> int:
    return ORDER.index(verdict)
