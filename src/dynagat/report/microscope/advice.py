"""The microscope's result in sentences: the answer, the reason for each verdict, and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    DYNAMIC: "different nodes rank the same neighbours differently",
    MOSTLY_STATIC: "nodes rank the same neighbours in nearly the same order",
    STATIC: "all nodes rank the same neighbours in the same order",
    UNIFORM: "all neighbours get about the same weight",
    UNDECIDED: "no two nodes share two neighbours with different scores",
}
STATIC_KINDS = ("GATConv", "FusedGATConv", "HANConv")  # score_ij = LeakyReLU(query_i + key_j)


@dataclass(frozen=True)
class Advice:
    """A paragraph, and code to try."""

    verdict: str
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
    " ranking fits the data, or few queries share keys. GAT may be just as good here: compare both"
    " on held-out nodes.",
)
HARDLY_DYNAMIC = Advice(
    MOSTLY_STATIC,
    "mostly static",
    "{kinds} could be dynamic but hardly is. Either one ranking of the nodes fits the data, and GAT"
    " may be just as good; or the model is not trained enough: more steps, less dropout on"
    " attention, or features that distinguish the queries may help.",
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
    UNDECIDED,
    "nothing to compare",
    "Static and dynamic attention differ only if queries share keys. Use a graph, or batches, in"
    " which they do.",
)


def answer(heads: Sequence[Head]) -> str:
    """ "5 of 8 heads are dynamic: different nodes rank the same neighbours differently. 3 ..." """
    counts = Counter(head.verdict for head in heads)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], ORDER.index(item[0])))
    subjects = [f"{number:,}" for _, number in ordered]
    subjects[0] += f" of {count(len(heads), 'head')}"
    if len(ordered) == 1:
        total = len(heads)
        subjects = [{1: "The only head", 2: "Both heads"}.get(total, f"All {total:,} heads")]
    return " ".join(
        f"{subject} {'is' if number == 1 else 'are'} {WORDS[verdict]}: {MEANINGS[verdict]}."
        for subject, (verdict, number) in zip(subjects, ordered, strict=True)
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
    return f"{listed(parts)}. {_exactness(result.layers)}"


def _layers(layers: Sequence[Layer]) -> str:
    kinds = Counter((layer.kind, len(layer.heads)) for layer in layers)
    return listed(
        [
            f"{count(number, 'layer')} of {kind} with {count(heads, 'head')}"
            for (kind, heads), number in kinds.items()
        ]
    )


def _exactness(layers: Sequence[Layer]) -> str:
    if all(layer.is_exact for layer in layers):
        return (
            "All queries that share keys were compared, so the numbers are exact for this graph;"
            " the intervals show how much they could differ for other queries of the same kind."
        )
    sampled = [layer.name or layer.kind for layer in layers if not layer.is_exact]
    where = "" if len(sampled) == len(layers) else f" of {listed(sampled)}"
    return (
        f"The numbers{where} are estimates from a sample of queries and comparisons; the intervals"
        " show their uncertainty."
    )


def why(head: Head) -> str:
    """The rule that led to the verdict, with its numbers."""
    agreement, same_choice = head.agreement.value, head.same_choice.value
    if head.verdict == STATIC:
        return "All queries rank the keys they share in the same order."
    if head.verdict == UNIFORM:
        share = head.effective.value / head.degree
        return f"The effective number of neighbours is {share:.1%} of the degree: none stands out."
    if head.verdict == UNDECIDED:
        return "No two queries share two keys with different scores."
    if head.verdict == MOSTLY_STATIC:
        return f"Queries rarely disagree: τ and same choice are both at least {MOSTLY}."
    if agreement >= MOSTLY:
        return f"Most orders agree, but only {same_choice:.0%} of pairs rank the same key first."
    return f"Queries rank the keys they share differently: τ is only {tau(agreement)}."


def tau(value: float) -> str:
    """Two decimals, or three if two would hide on which side of the threshold it is."""
    text = f"{value:.2f}"
    return (f"{value:.3f}" if float(text) == MOSTLY else text).replace("-", "−")


def advise(heads: Sequence[Head]) -> list[Advice]:
    """What each verdict means for this model, and what to try."""
    by_verdict = {each: [h for h in heads if h.verdict == each] for each in ORDER}
    static = by_verdict[STATIC]
    cases = (
        (STATIC_BY_CONSTRUCTION, [h for h in static if h.kind in STATIC_KINDS]),
        (STATIC_BY_DATA, [h for h in static if h.kind not in STATIC_KINDS]),
        (HARDLY_DYNAMIC, by_verdict[MOSTLY_STATIC]),
        (NOT_ATTENDING, by_verdict[UNIFORM]),
        (NOTHING_TO_DO, by_verdict[DYNAMIC]),
        (NOT_COMPARABLE, by_verdict[UNDECIDED]),
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
