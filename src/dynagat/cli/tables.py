"""TableOptions: the options with which several commands read tables."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

SHARES = (0.6, 0.2, 0.2)  # of nodes and molecules, by default


@dataclass(frozen=True)
class TableOptions:
    """See data.tables.read_tables."""

    edges: Annotated[Path | None, typer.Option(help="CSV or Parquet with a row per edge.")] = None
    nodes: Annotated[Path | None, typer.Option(help="CSV or Parquet with a row per node.")] = None
    target: Annotated[
        str | None, typer.Option(help="Column of the nodes to predict; several: a,b,c.")
    ] = None
    task: Annotated[
        str, typer.Option(help="auto, classification, multilabel, regression or link.")
    ] = "auto"
    key: Annotated[str | None, typer.Option(help="Column of the edges with the neighbour.")] = None
    query: Annotated[
        str | None, typer.Option(help="Column of the edges with the node that attends to it.")
    ] = None
    node_id: Annotated[
        str | None, typer.Option("--id", help="Column of the nodes with their ids.")
    ] = None
    split: Annotated[
        str | None,
        typer.Option(help="Column of the nodes (links: of the edges) with train, valid and test."),
    ] = None
    shares: Annotated[
        tuple[float, float, float] | None,
        typer.Option(help="Fractions of a random split; default: 0.6 0.2 0.2, links 0.8 0.1 0.1."),
    ] = None
    split_seed: Annotated[int, typer.Option(help="Seed of the random split.")] = 0
    directed: Annotated[
        bool, typer.Option("--directed", help="Keep the direction of the edges.")
    ] = False
    ignore: Annotated[list[str], typer.Option(help="Column of the nodes to leave out.")] = field(
        default_factory=list
    )

    def read(self, **more: Any) -> Any:
        """Read the graph from the tables."""
        from dynagat.data.tables import read_tables

        if self.edges is None or self.nodes is None:
            raise ValueError(f"--{'edges' if self.edges is None else 'nodes'} is missing")
        several = self.target.split(",") if self.target and "," in self.target else self.target
        return read_tables(
            self.edges,
            self.nodes,
            target=several,
            task=self.task,
            key=self.key,
            query=self.query,
            id=self.node_id,
            split=self.split,
            shares=self.shares or SHARES,
            seed=self.split_seed,
            directed=self.directed,
            ignore=[name for text in self.ignore for name in text.split(",")],
            **more,
        )

    def read_links(self, time: str | None) -> Any:
        """Read the links from the table of edges."""
        from dynagat.data import read_links
        from dynagat.data.link_split import SHARES

        if self.edges is None:
            raise ValueError("--edges is missing: the table of the links")
        for name in ("target", "directed"):
            if getattr(self, name):
                raise ValueError(f"--{name} is for nodes, not for --task link")
        return read_links(
            self.edges,
            self.nodes,
            time=time,
            split=self.split,
            key=self.key,
            query=self.query,
            id=self.node_id,
            ignore=[name for text in self.ignore for name in text.split(",")],
            shares=self.shares or SHARES,
            seed=self.split_seed,
        )


def table_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of TableOptions as options, which it gets as `tables`."""
    names = [each.name for each in fields(TableOptions)]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        own = {name: given.pop(name) for name in names}
        own["ignore"] = own["ignore"] or []
        command(tables=TableOptions(**own), **given)

    signature = inspect.signature(command, eval_str=True)
    others = [each for name, each in signature.parameters.items() if name != "tables"]
    parameters = sorted([*_parameters(), *others], key=lambda each: each.name not in names)
    plain = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = signature.replace(parameters=plain)  # pyright: ignore
    del run.__wrapped__  # typer would use its signature
    run.__annotations__ = {each.name: each.annotation for each in plain}
    return run


def _parameters() -> list[inspect.Parameter]:
    hints = typing.get_type_hints(TableOptions, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=[] if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(TableOptions)
    ]
