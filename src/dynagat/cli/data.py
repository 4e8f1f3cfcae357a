"""dynagat data: list, get, import, describe and remove graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from dynagat import files
from dynagat.cli.console import err, explain_errors, note, out
from dynagat.cli.programs import import_great_file, import_original_files, import_python_files
from dynagat.cli.tables import TableOptions, table_options
from dynagat.data.arrays import FolderError, remove_folder
from dynagat.data.assumptions import assumptions
from dynagat.data.catalog import CATALOG, Entry, find_entry, get, load
from dynagat.data.programs.layout import read_info
from dynagat.data.programs.summary import describe_programs, find_programs, stored_programs
from dynagat.data.rows import remove_rows
from dynagat.data.store import GraphData, check_name, open_graph, store_folder, stored_names

data_app = typer.Typer(no_args_is_help=True, help="List, get, import and describe graphs.")
data_app.command("import-python")(import_python_files)
data_app.command("import-great")(import_great_file)
data_app.command("import-programs")(import_original_files)

Name = Annotated[str, typer.Argument(help="A stored graph, or one of the catalogue.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace a stored graph of this name.")]


@data_app.command("list")
def list_graphs(
    as_json: Annotated[bool, typer.Option("--json", help="Print one graph per line.")] = False,
) -> None:
    """List the catalogue and other stored graphs: sizes, and where they are or how to get them."""
    with explain_errors():
        rows = [_row(name) for name in dict.fromkeys([*CATALOG, *stored_names()])]
        rows += [_programs_row(name) for name in stored_programs()]
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    table = Table("graph", "what", box=None, pad_edge=False)
    for name in ("nodes", "edges"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("where")
    for row in rows:
        sizes = ["" if row[name] is None else f"{row[name]:,}" for name in ("nodes", "edges")]
        table.add_row(row["name"], row["what"], *sizes, row["where"])
    out.print(table)
    note(f"stored graphs: {store_folder()}")


def _row(name: str) -> dict:
    """What the list shows about a graph."""
    entry = CATALOG.get(name)
    what = entry.what if entry else "your own"
    if name not in stored_names():
        assert entry is not None
        return {**_sizes(entry.nodes, entry.edges), "name": name, "what": what, **_where(entry)}
    try:
        data = open_graph(name, verify=False)
    except FolderError as error:
        return {**_sizes(None, None), "name": name, "what": what, "where": str(error)}
    sizes = _sizes(sum(nodes.count for nodes in data.nodes.values()), data.num_edges)
    return {**sizes, "name": name, "what": what, "where": "stored"}


def _programs_row(name: str) -> dict:
    """Of program graphs, with the sums over all graphs."""
    try:
        info = read_info(store_folder() / name)
    except FolderError as error:
        return {**_sizes(None, None), "name": name, "what": "programs", "where": str(error)}
    parts = info.parts.values()
    sizes = _sizes(sum(each.nodes for each in parts), sum(each.edges for each in parts))
    what = f"{sum(each.graphs for each in parts):,} program graphs ({info.language})"
    return {**sizes, "name": name, "what": what, "where": "stored"}


def _sizes(nodes: int | None, edges: int | None) -> dict:
    return {"nodes": nodes, "edges": edges}


def _where(entry: Entry) -> dict:
    if not entry.signs:
        return {"where": "computed when it is used"}
    folder = entry.raw()
    return {"where": f"dynagat data get {entry.name}" if folder is None else f"files in {folder}"}


@data_app.command("get")
def get_graph(name: Name, replace: Replace = False) -> None:
    """Download a data set of the catalogue, unless its files are here, and store its graph."""
    with explain_errors():
        find_entry(name)
        with _progress(name) as tell:
            data = get(name, replace=replace, tell=tell)
    _print_stored(data)


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int | None], None]]:
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(name, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@data_app.command("import")
@table_options
def import_graph(
    tables: TableOptions,
    name: Annotated[str | None, typer.Option(help="Name of the graph.")] = None,
    edge_column: Annotated[
        list[str] | None, typer.Option(help="A numeric column of the edges to keep.")
    ] = None,
    npz: Annotated[Path | None, typer.Option(help="An .npz with x, edge_index, y.")] = None,
    planetoid: Annotated[Path | None, typer.Option(help="A folder of ind.NAME.* files.")] = None,
    ogb: Annotated[Path | None, typer.Option(help="A folder with OGB's raw/ and split/.")] = None,
    replace: Replace = False,
) -> None:
    """Store a graph of your own: from tables, an .npz, or files of Planetoid or OGB."""
    with explain_errors():
        given = {"edges": tables.edges, "npz": npz, "planetoid": planetoid, "ogb": ogb}
        sources = [each for each, value in given.items() if value is not None]
        if len(sources) != 1:
            names = " and ".join(f"--{each}" for each in sources) or "none of them"
            raise ValueError(
                f"give exactly one of --edges, --npz, --planetoid, --ogb, but got {names}"
            )
        if tables.edges is not None:
            name = check_name(name or tables.edges.name.split(".")[0])
            folder, columns = store_folder() / name, tuple(edge_column or ())
            data = tables.read(folder=folder, edge_columns=columns, replace=replace)
        else:
            if tables.directed and npz is None:
                raise ValueError("--directed is for --edges and --npz, but got neither")
            data = _read_files(npz, planetoid, ogb, name, tables.directed, replace)
    for sentence in assumptions(data):
        note(sentence)
    _print_stored(data)


def _read_files(
    npz: Path | None,
    planetoid: Path | None,
    ogb: Path | None,
    name: str | None,
    directed: bool,
    replace: bool,
) -> GraphData:
    from dynagat.data.npz import read_npz
    from dynagat.data.ogb import read_ogb
    from dynagat.data.planetoid import read_planetoid

    if npz is not None:
        return read_npz(npz, name, directed=directed).save(replace=replace)
    if planetoid is not None:
        return read_planetoid(planetoid, name).save(replace=replace)
    assert ogb is not None
    return read_ogb(ogb, name, replace=replace)


@data_app.command("describe")
def describe_graph(
    name: Annotated[
        str, typer.Argument(help="A stored graph, one of the catalogue, or a folder.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="The paper's statistics beside those of the data here; default: all."
        ),
    ] = False,
) -> None:
    """Check a graph's checksums; print its nodes, edges, degrees, components, labels, homophily.

    Of program graphs: numbers of graphs, mean nodes, edges and diameter of each part.
    """
    from dynagat.data.statistics import describe

    if paper:
        _describe_paper(name, as_json)
        return
    with explain_errors():
        if not name:
            raise ValueError("name a graph to describe, or use --paper for the paper's statistics")
        programs = find_programs(name)
        is_known = name in CATALOG and name not in stored_names() and not Path(name).is_dir()
        if programs is not None:
            description = describe_programs(programs)
        else:
            description = describe(load(name) if is_known else open_graph(name, verify=True))
    print(json.dumps(description.to_dict()) if as_json else description)


def _describe_paper(name: str, as_json: bool) -> None:
    from dynagat.benchmarks.data_tables import data_table

    with explain_errors():
        table = data_table(name or None, lambda each: note(f"{each} ..."))
    if as_json:
        for line in table.lines:
            print(json.dumps(dict(zip(table.columns, line.cells, strict=True))))
        return
    print(f"{table.to_text()}\n\n{table.legend}")


@data_app.command("remove")
def remove_graph(name: Annotated[str, typer.Argument(help="A stored graph.")]) -> None:
    """Remove a graph from the store; downloaded files stay."""
    with explain_errors():
        if name in stored_programs():
            files.remove_folder(store_folder() / name)
        elif name in stored_names():
            remove_rows(store_folder() / name)
            remove_folder(store_folder() / name)
        else:
            known = ", ".join([*stored_names(), *stored_programs()]) or "none"
            raise ValueError(f"there is no stored graph {name!r}; {store_folder()} has {known}")
    out.print(f"removed {name}", markup=False, highlight=False)


def _print_stored(data: GraphData) -> None:
    nodes = sum(each.count for each in data.nodes.values())
    text = f"{data.name}: {nodes:,} nodes, {data.num_edges:,} edges; stored in {data.folder}"
    out.print(text, markup=False, highlight=False, soft_wrap=True)
