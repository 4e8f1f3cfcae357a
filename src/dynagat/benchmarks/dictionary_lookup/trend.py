"""Do normalisation, activation, dropout or the learning rate change the trend? The paper says no.

Each is changed by itself, with `--set`, in the corrected protocol. The trend is that of Figure 3:
GATv2 is above GAT at every k, whatever the number of GAT's heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynagat.benchmarks.dictionary_lookup.published import TEST
from dynagat.report import wording
from dynagat.report.findings import Findings
from dynagat.report.parts import Table
from dynagat.report.rows import OURS, RIVAL, Row, families

VARIED = {
    "network.norm": "normalisation",
    "network.activation": "activation",
    "schedule.lr": "learning rate",
    "network.dropout": "dropout",
}
COLUMNS = ("changed", "GATv2", "GAT", "k", "n", "GATv2 above GAT", "cut off", "trend")
LEGEND = (
    "Corrected protocol with one setting changed; the first lines are without a change. Means of"
    " test accuracy over the values of k that both mechanisms have. GATv2 above GAT: at how many of"
    " them its mean over n seeds is higher. The trend holds if that is so at all of them; values"
    " of k at which a run was cut off count for neither."
)
TITLE = "Does the trend depend on normalisation, activation, dropout or the learning rate?"


def trend_table(findings: Findings) -> Table | None:
    """None without runs of GATv2 and GAT under a changed setting."""
    every = [row for row in findings.rows if row.fidelity == "corrected" and row.values]
    lots = {name: lot for name, lot in families(every) if _is_varied(lot[0])}
    plain = {name: lot for name, lot in families(every) if lot[0].is_standard}
    changed = [cells for lot in lots.values() for cells in _lines(lot)]
    if not changed:
        return None
    unchanged = [cells for lot in plain.values() for cells in _lines(lot)]
    return Table.of(TITLE, COLUMNS, [*unchanged, *changed], legend=LEGEND)


def trend(findings: Findings) -> tuple[int, int]:
    """In how many comparisons of a changed setting the trend holds, and how many there are."""
    table = trend_table(findings)
    lines = [] if table is None else [line.cells for line in table.lines]
    verdicts = [cells[-1] for cells in lines if cells[0] != "nothing" and cells[-1]]
    return sum(verdict == "holds" for verdict in verdicts), len(verdicts)


def _is_varied(row: Row) -> bool:
    """Whether exactly one of the settings that the paper names is changed, and no other."""
    others = row.changed.keys() - row.caveats.keys()
    return len(others) == 1 and others <= VARIED.keys()


def _lines(lot: Sequence[Row]) -> Iterator[list[str]]:
    """A line for each pair of GATv2 and GAT, with as many heads as were run."""
    ours = {row.swept["k"]: row for row in lot if row.mechanism == OURS and row.heads == 1}
    for heads in sorted({row.heads for row in lot if row.mechanism == RIVAL}):
        theirs = {r.swept["k"]: r for r in lot if (r.mechanism, r.heads) == (RIVAL, heads)}
        shared = sorted(ours.keys() & theirs.keys())
        if shared:
            yield _cells([(ours[k], theirs[k]) for k in shared])


def _cells(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    first = pairs[0][0]
    names = [path for path in VARIED if path in first.changed]
    texts = [f"{VARIED[path]} {wording.setting_text(first.changed[path])}" for path in names]
    fair = [(a, b) for a, b in pairs if a.is_comparable(b)]
    above = sum(a.mean > b.mean for a, b in fair)
    seeds = sorted({len(row.values) for pair in pairs for row in pair})
    return [
        texts[0] if texts else "nothing",
        _mean([a for a, _ in pairs]),
        f"{_mean([b for _, b in pairs])} ({wording.count(pairs[0][1].heads, 'head')})",
        wording.ranges([a.swept["k"] for a, _ in pairs]),
        wording.ranges(seeds),
        f"{above} of {len(fair)}",
        str(len(pairs) - len(fair) or ""),
        ("holds" if above == len(fair) else "does not hold") if fair else "",
    ]


def _mean(rows: Sequence[Row]) -> str:
    return wording.number(sum(row.mean for row in rows) / len(rows), TEST)
