"""dynagat plan: what training on a data set would take, from rates measured on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dynagat.cli.console import explain_errors, note, out


def plan(
    dataset: Annotated[
        str, typer.Argument(help="A stored graph, one of the catalogue, or ogbn-papers100M.")
    ],
    hosts: Annotated[int, typer.Option(help="Number of machines.")] = 1,
    mechanism: Annotated[str, typer.Option(help="gat, gatv2 or dpgat.")] = "gatv2",
    memory: Annotated[
        float | None, typer.Option(help="GB of each host; default: as this machine.")
    ] = None,
    gigabits: Annotated[float, typer.Option(help="Of the network, per second.")] = 10.0,
    partitioned: Annotated[
        bool, typer.Option("--partitioned", help="Features are spread over the hosts.")
    ] = False,
    rates: Annotated[
        Path | None,
        typer.Option(help="Output of an earlier --json, whose rates are used; default: measure."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Sizes, memory per host, network traffic and time per epoch of training on a data set.

    Measures for about ten seconds how fast this machine samples, reads, multiplies and attends.
    """
    from dynagat.planning import Hosts, find_sizes, make_plan, measure_rates, read_rates
    from dynagat.planning.plan import check_mechanism
    from dynagat.planning.text import lines

    with explain_errors():
        cluster = Hosts(hosts, None if memory is None else memory * 1e9, gigabits, partitioned)
        find_sizes(dataset)  # before measuring
        check_mechanism(mechanism)
        measured = measure_rates(_tell) if rates is None else read_rates(rates)
        result = make_plan(dataset, measured, cluster, mechanism)
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    for line in lines(result):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _tell(what: str) -> None:
    note(f"measuring: {what}")
