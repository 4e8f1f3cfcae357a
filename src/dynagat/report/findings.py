"""Findings: what the records of a benchmark show, as one value. The renderers only print it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from dynagat.experiment import Benchmark, Record, departures
from dynagat.metrics import Metric
from dynagat.report import provenance, wording
from dynagat.report.attentive import attentive_table
from dynagat.report.costs import Cost, compared_with_pyg, cost_table, costs
from dynagat.report.headline import headline
from dynagat.report.notes import notes
from dynagat.report.parts import Code, Extras, Facts, Part, Prose, Section, Table
from dynagat.report.results import details_table, legend, result_table
from dynagat.report.rows import Row, current, families, metrics_of, rows


@dataclass(frozen=True, eq=False)
class Findings:
    """Rows, headline, costs and notes of a benchmark's records, and their order in a report."""

    benchmark: Benchmark
    records: tuple[Record, ...]  # those of the benchmark as it is now
    num_outdated: int = 0  # records that were left out

    @classmethod
    def of(cls, records: Iterable[Record], benchmark: Benchmark) -> Findings:
        mine = [record for record in records if record.benchmark == benchmark.name]
        kept = current(mine, benchmark)
        return cls(benchmark, tuple(kept), len(mine) - len(kept))

    def rows_of(self, metric: Metric) -> list[Row]:
        return self.rows if metric == self.benchmark.metric else self._more_rows[metric]

    @cached_property
    def rows(self) -> list[Row]:
        """Of the benchmark's main metric."""
        return rows(self.records, self.benchmark)

    @cached_property
    def _more_rows(self) -> dict[Metric, list[Row]]:
        return {
            metric: rows(self.records, self.benchmark, metric)
            for metric in metrics_of(self.benchmark)[1:]
        }

    @cached_property
    def costs(self) -> list[Cost]:
        return costs(self.rows, self.benchmark)

    @cached_property
    def extras(self) -> Extras:
        return self.benchmark.extras(self) or Extras()

    @cached_property
    def headline(self) -> list[Prose]:
        said = headline(self.benchmark, self.rows, self.extras.say)
        costs = tuple(compared_with_pyg(self.costs))
        return [*said, *([Prose(costs, is_list=True, title="Costs")] if costs else [])]

    @cached_property
    def sections(self) -> list[Section]:
        """Everything that a report shows, in its order."""
        first = Section("", (*self.headline, *self.extras.draw(), *self._main()))
        if not self.records:
            return [first]
        return [first, Section("How it was run", tuple(self._background()))]

    @property
    def brief_parts(self) -> list[Part]:
        """What the terminal shows of it; no figure is drawn."""
        parts = [*self.headline, *self._main()]
        return [p for p in parts if isinstance(p, Prose) or (isinstance(p, Table) and p.brief)]

    def _main(self) -> Iterator[Part]:
        if not self.records:
            yield Code("Run it with", (provenance.first_command(self.benchmark),))
            return
        yield from self._result_tables()
        yield Prose((legend(self.rows),))
        remarks = notes(self.benchmark, self.rows)
        if remarks:
            yield Prose(tuple(remarks))
        for _, family in families(self.rows):
            table = attentive_table(family)
            if table:
                yield table
        yield from self.extras.tables

    def _result_tables(self) -> Iterator[Table]:
        for metric in metrics_of(self.benchmark):
            is_main = metric == self.benchmark.metric
            for _, family in families(self.rows_of(metric)):
                is_open = is_main and family[0].is_standard
                yield result_table(family, folded=not is_open, brief=is_main)
                if any(len(row.values) > 1 for row in family):  # a single seed has no tests
                    yield details_table(family)

    def _background(self) -> Iterator[Part]:
        yield Facts(provenance.facts(self.records))
        table = cost_table(self.costs)
        if table:
            yield table
        commands = provenance.commands(self.benchmark, self.rows)
        yield Code("The commands that make these runs", tuple(commands), folded=True)
        table = _departures_table(self.benchmark)
        if table:
            yield table


def _departures_table(benchmark: Benchmark) -> Table | None:
    """The settings that are not the same in all fidelities."""
    marks = list(departures(benchmark.settings))
    if not marks:
        return None
    columns = ["number", "setting", "corrected", "released code"]
    lines = [[m.number, m.path, _value(m.corrected), _value(m.published)] for m in marks]
    legend = "--as-published uses the values of the released code."
    if any(mark.improved != mark.corrected for mark in marks):
        columns.append("improved")
        lines = [[*line, _value(m.improved)] for line, m in zip(lines, marks, strict=True)]
        legend += " --improved uses our improvements."
    title = "Where the fidelities differ"
    options = {"text_columns": len(columns), "legend": legend, "folded": True}
    return Table.of(title, columns, lines, **options)


def _value(value: object) -> str:
    return wording.setting_text(value) or "none"
