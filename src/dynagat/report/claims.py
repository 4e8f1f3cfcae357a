"""claims_page: what the paper claims, what was run, what came out and how sure it is, in Markdown.

A benchmark states its claims, and `judgement` decides from the tests which of them held. Theorems
have certificates, which `dynagat theory` makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dynagat.analysis.verdict import STATIC, UNKNOWN, words_of
from dynagat.report import wording
from dynagat.report.findings import Findings
from dynagat.report.judgement import FAILED, HELD, IN_PART, UNTESTED, Judgement, compared
from dynagat.report.rows import OURS, RIVAL, Row
from dynagat.report.theorems import Theorem

INTRODUCTION = (
    "# What we found\n\n"
    "The paper's claims, judged by `dynagat report` from the records in `results/`. *Held*: GATv2"
    " is significantly better in every comparison (p < 0.05 after Holm's correction, whose family"
    " of tests is stated). *Held in part*: in some, not in all or not all tested. *Higher mean, not"
    " significant*: in none, but better on average in all tested. *Did not hold*: in none, and not"
    " better on average in some. *Not tested*: no runs, one seed, or runs that were cut off, which"
    " count for no mechanism.\n\n"
    "*corrected* follows the paper's text and decides; *as-published* follows its released code;"
    " *improved* adds [changes of ours](reproduction.md) for all mechanisms."
)


def claims_page(every: Iterable[Findings], theorems: Sequence[Theorem] = ()) -> str:
    """One section for each benchmark with records; the claims without records in one sentence."""
    known = [each for each in every if each.benchmark.claim]
    texts = [INTRODUCTION]
    if theorems:
        texts.append(_theorems(theorems, known))
    texts += [_section(each) for each in known if each.records]
    missing = [f"{each.benchmark.name} ({each.benchmark.source})"
               for each in known if not each.records]  # fmt: skip
    if missing:
        texts.append(f"## Not run\n\n**Not tested**: {wording.listed(missing)}.")
    return "\n\n".join(texts) + "\n"


def judgements(findings: Findings) -> list[Judgement]:
    """Of the benchmark's own claims, or that GATv2 is better than GAT."""
    judge = findings.extras.judge
    if judge is None:
        return list(compared(findings, findings.benchmark.claim))
    return list(judge(findings))


def _section(findings: Findings) -> str:
    benchmark = findings.benchmark
    page = f"[all results](results/{benchmark.name}.md)"
    head = f"{benchmark.source}. {_extent(findings)}; {page}."
    named = findings.extras.claims or (benchmark.claim,)
    claims: dict[str, list[Judgement]] = {claim: [] for claim in named}
    for each in judgements(findings):
        claims.setdefault(each.claim, []).append(each)
    texts = [f"## {benchmark.title.partition(':')[0]}", head]
    return "\n\n".join(texts + [_claim(claim, each) for claim, each in claims.items()])


def _claim(claim: str, every: Sequence[Judgement]) -> str:
    lines = [f"*{claim}*\n"]
    lines += [] if every else [f"- **{wording.first_upper(UNTESTED)}**: there are no such runs."]
    for each in every:
        verdict = wording.first_upper(each.verdict)
        lines.append(f"- **{verdict}** ({each.context}): {each.numbers}")
    return "\n".join(lines)


def _extent(findings: Findings) -> str:
    """ "300 runs: GAT 100, GATv2 100, DPGAT 100; 12 of them were cut off" """
    counts: Counter[str] = Counter()
    for row in findings.rows:
        counts[wording.name_of(row.mechanism)] += len(row.runs)
    cut = sum(row.not_converged for row in findings.rows)
    parts = ", ".join(f"{name} {number}" for name, number in counts.items())
    total = wording.count(counts.total(), "run")
    return f"{total}: {parts}" + (f"; {cut} of them were cut off" if cut else "")


def _theorems(theorems: Sequence[Theorem], every: Sequence[Findings]) -> str:
    lines = []
    for verdict, is_shown in ((HELD, True), (FAILED, False)):
        names = [f"{each.name} ({each.claim})" for each in theorems if each.shown == is_shown]
        if names:
            lines.append(f"- **{wording.first_upper(verdict)}**: {wording.listed(names)}.")
    return "\n".join([
        "## Theorems\n",
        "Witnesses that `dynagat theory` checks by running the layers; the counterexample is drawn"
        " in [theorems/counterexample.svg](theorems/counterexample.svg).\n",
        *lines,
        *_trained(every),
    ])  # fmt: skip


def _trained(every: Sequence[Findings]) -> list[str]:
    """Theorems 1 and 2 in trained networks: the microscope's verdicts of all records together."""
    words = {
        mechanism: [
            word
            for each in every
            for row in each.rows
            if row.mechanism == mechanism
            for word in _rankings(row)
            if word != UNKNOWN
        ]
        for mechanism in (RIVAL, OURS)
    }
    if not words[RIVAL]:
        return []
    verdict = HELD if set(words[RIVAL]) == {STATIC} and STATIC not in words[OURS] else IN_PART
    parts = [
        f"of {wording.count(len(rankings), 'head')} of {wording.name_of(mechanism)},"
        f" {wording.tally(rankings)}"
        for mechanism, rankings in words.items()
    ]
    return [
        f"- **{wording.first_upper(verdict)}** in trained networks, by the microscope:"
        f" {'; '.join(parts)}. Mixed and dynamic rankings depend on the query. Layers with several"
        " relations are not counted: the theorem is about one."
    ]


def _rankings(row: Row) -> Iterator[str]:
    """Whether each head of each run is static, mixed or dynamic; layers of one relation only."""
    for run in row.runs:
        for layer in (run.exhibits.get("microscope") or {}).get("layers", ()):
            if not layer.get("relations"):
                yield from (words_of(head)[1] for head in layer["heads"] if "agreement" in head)
