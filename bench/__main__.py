"""The command line of the benchmarks: python -m bench."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.cases import FULL, QUICK, Case, make_cases
from bench.demo import run_demo
from bench.machine import ROOT
from bench.records import Ledger, read_ledger
from bench.report import goals_table, render, render_readme
from bench.run import run, say

FULL_PATH = ROOT / "docs" / "performance.json"
QUICK_PATH = ROOT / "build" / "bench" / "quick.json"  # never in the place of the full run


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(
        prog="python -m bench", description="dynagat's speed and memory beside PyG's and DGL's."
    )
    main.add_argument("--quick", action="store_true", help="small graphs, under two minutes")
    main.add_argument("--only", action="append", metavar="NAME", help="a case or a group of cases")
    main.add_argument("--json", type=Path, metavar="PATH", help="where the raw numbers are kept")
    main.add_argument("--fresh", action="store_true", help="measure again what is there already")
    main.add_argument("--report", action="store_true", help="only write the page and the picture")
    main.add_argument("--readme", action="store_true", help="only print the README's table")
    main.add_argument("--demo", action="store_true", help="one layer beside PyG's, in a minute")
    return main


def choose(cases: list[Case], names: Sequence[str] | None) -> list[Case]:
    """The cases of these names or groups; all, if there are none."""
    known = {case.name for case in cases} | {case.group for case in cases}
    for name in names or ():
        if name not in known:
            raise ValueError(f"--only must name one of {', '.join(sorted(known))}, not {name!r}")
    return [case for case in cases if not names or {case.name, case.group} & set(names)]


def write_report(ledger: Ledger, path: Path) -> None:
    """The page and the picture, beside the JSON file and by its name."""
    picture = path.with_suffix(".svg")
    try:
        from bench.picture import draw
    except ImportError as error:
        say(f"no picture is drawn: {error}")
    else:
        draw(ledger, picture)
    page = path.with_suffix(".md")
    page.write_text(render(ledger, picture.name if picture.exists() else None))
    say(f"wrote {page}")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    path = options.json or (QUICK_PATH if options.quick else FULL_PATH)
    if options.demo:
        print(run_demo())
        return
    if options.report or options.readme:
        if not path.exists():
            raise ValueError(f"--json must be a file of records, but {path} does not exist")
        ledger = read_ledger(path)
        write_report(ledger, path) if options.report else print(render_readme(ledger))
        return
    cases = make_cases(QUICK if options.quick else FULL)
    command = shlex.join(["python", "-m", "bench", *(arguments or sys.argv[1:])])
    how = {"command": command, "fresh": options.fresh, "shared": options.quick}
    ledger = run(cases, choose(cases, options.only), path, **how)
    write_report(ledger, path)
    if options.quick:
        say("these graphs are small; the goals are meant for the full run")
    print(goals_table(ledger))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, RuntimeError) as error:
        sys.exit(f"bench: {error}")
