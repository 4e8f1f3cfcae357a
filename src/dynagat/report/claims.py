"""claims_page: what the paper claims, what was run, what came out and how sure it is, in Markdown.

A benchmark states its claim (`Benchmark.claim`). What came out are the sentences of its headline
that compare GATv2 with others, so nothing is called better unless the corrected test says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dynagat.report import wording
from dynagat.report.findings import Findings
from dynagat.report.headline import comparisons

INTRODUCTION = (
    "# What we found\n\n"
    "Each claim of the paper, what we ran, what came out, and how sure it is; also where the paper"
    " does not hold. Written by `dynagat report` from the records in `results/`. “Better” is said"
    " only where the test is significant after Holm's correction, whose family of tests is stated;"
    " runs that were cut off count for no mechanism."
)


def claims_page(every: Iterable[Findings]) -> str:
    """One section for each claim with records; the claims without records in one sentence."""
    known = [each for each in every if each.benchmark.claim]
    texts = [INTRODUCTION, *(_section(each) for each in known if each.records)]
    missing = [f"{each.benchmark.name} ({each.benchmark.source})"
               for each in known if not each.records]  # fmt: skip
    if missing:
        texts.append(f"## Not run\n\nThere are no records of {wording.listed(missing)}.")
    return "\n\n".join(texts) + "\n"


def _section(findings: Findings) -> str:
    benchmark = findings.benchmark
    lines = [
        f"- **The paper** ({benchmark.source}): {benchmark.claim}",
        f"- **We ran** {_extent(findings)}.",
    ]
    sentences = comparisons(findings.rows, findings.extras.say)
    lines += [f"- {sentence}" for sentence in sentences or ["GATv2 was compared with nothing."]]
    page = f"[All results](results/{benchmark.name}.md)"
    return f"## {benchmark.title.partition(':')[0]}\n\n" + "\n".join(lines) + f"\n\n{page}."


def _extent(findings: Findings) -> str:
    """ "300 runs: GAT 100, GATv2 100, DPGAT 100; 12 of them were cut off" """
    counts: Counter[str] = Counter()
    for row in findings.rows:
        counts[wording.name_of(row.mechanism)] += len(row.runs)
    cut = sum(row.not_converged for row in findings.rows)
    parts = ", ".join(f"{name} {number}" for name, number in counts.items())
    total = wording.count(counts.total(), "run")
    return f"{total}: {parts}" + (f"; {cut} of them were cut off" if cut else "")
