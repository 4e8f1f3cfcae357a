"""The command line of the benchmarks: python -m bench."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import device_page
from bench.cases import FULL, LONG, QUICK, Case, make_cases
from bench.demo import run_demo
from bench.device import make_cases as device_cases
from bench.machine import ROOT
from bench.records import Ledger, read_ledger
from bench.report import goals_table, render, render_readme
from bench.run import log, run
from dynagat.placement import find_device

FULL_PATH = ROOT / "docs" / "performance.json"
QUICK_PATH = ROOT / "build" / "bench" / "quick.json"  # so that it never replaces the full run


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(
        prog="python -m bench", description="Speed and memory of dynagat, PyG and DGL."
    )
    main.add_argument(
        "--quick",
        action="store_true",
        help="measure on small graphs, in under two minutes; groups that take long only by --only",
    )
    main.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="measure only this case or group of cases; can be repeated",
    )
    main.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help="file of the raw numbers; the page and the figure are written next to it",
    )
    main.add_argument(
        "--fresh", action="store_true", help="measure again cases that are in the file already"
    )
    main.add_argument("--report", action="store_true", help="only write the page and the figure")
    main.add_argument("--readme", action="store_true", help="only print the table of the README")
    main.add_argument(
        "--demo", action="store_true", help="compare one layer with PyG's, in a minute"
    )
    main.add_argument(
        "--device",
        metavar="cuda[:N]",
        help="measure layers on this GPU instead, and write their own page",
    )
    return main


def choose(
    cases: list[Case], names: Sequence[str] | None, without: Sequence[str] = ()
) -> list[Case]:
    """The cases with these names or groups; if no names are given, all but the groups `without`."""
    if not names:
        return [case for case in cases if case.group not in without]
    known = {case.name for case in cases} | {case.group for case in cases}
    for name in names:
        if name not in known:
            raise ValueError(f"--only must be one of {', '.join(sorted(known))}, but is {name!r}")
    return [case for case in cases if {case.name, case.group} & set(names)]


def write_report(ledger: Ledger, path: Path) -> None:
    """Write the page and the figure next to the JSON file, under its name."""
    figure = path.with_suffix(".svg")
    try:
        from bench.figure import draw
    except ImportError as error:
        log(f"the figure is not drawn: {error}")
    else:
        draw(ledger, figure)
    page = path.with_suffix(".md")
    page.write_text(render(ledger, figure.name if figure.exists() else None))
    log(f"wrote {page}")


def run_on_device(options: argparse.Namespace, arguments: str) -> None:
    """Measure layers on a GPU, into a file and a page of their own."""
    for name in ("quick", "readme", "demo"):
        if getattr(options, name):
            raise ValueError(f"--device measures on a GPU and can't be combined with --{name}")
    path = options.json or device_page.PATH
    if not options.report:
        device = find_device(options.device)
        if device.type not in ("cuda", "xpu"):
            raise ValueError(f"--device must be a CUDA, ROCm or XPU device, but is {device}")
        cases = device_cases(options.device)
        settings = {"command": f"python -m bench {arguments}", "fresh": options.fresh}
        chosen = choose(cases, options.only)
        run(cases, chosen, path, **settings, shared=False, device=device)
    log(f"wrote {device_page.write_page(read_ledger(path), path)}")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if options.device is not None and options.device != "cpu":
        return run_on_device(options, shlex.join(arguments or sys.argv[1:]))
    path = options.json or (QUICK_PATH if options.quick else FULL_PATH)
    if options.demo:
        print(run_demo())
        return
    if options.report or options.readme:
        if not path.exists():
            raise ValueError(
                f"--json must be an existing file of raw numbers, but {path} does not exist"
            )
        ledger = read_ledger(path)
        write_report(ledger, path) if options.report else print(render_readme(ledger))
        return
    cases = make_cases(QUICK if options.quick else FULL)
    command = shlex.join(["python", "-m", "bench", *(arguments or sys.argv[1:])])
    ledger = run(
        cases,
        choose(cases, options.only, LONG if options.quick else ()),
        path,
        command=command,
        fresh=options.fresh,
        shared=options.quick,
    )
    write_report(ledger, path)
    if options.quick:
        log("most of these graphs are small; the goals apply to the full run")
    print(render_readme(ledger) if options.quick else goals_table(ledger))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, RuntimeError) as error:
        sys.exit(f"bench: {error}")
