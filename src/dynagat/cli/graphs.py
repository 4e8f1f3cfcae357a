"""Your own graph or molecules: dynagat compare."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from dynagat.cli.console import explain_errors, note, words
from dynagat.cli.running import run_shown
from dynagat.cli.tables import SHARES, TableOptions, table_options
from dynagat.cli.workers import (
    CpusPerRun,
    Ddp,
    Device,
    GpusPerRun,
    RayAddress,
    Workers,
    chosen_runner,
)
from dynagat.experiment.settings import parse_numbers

LINK = "link"  # value of --task
Molecules = Annotated[
    Path | None, typer.Option("--graphs", help="CSV or Parquet with a row for each molecule.")
]
Smiles = Annotated[str | None, typer.Option(help="Column of the molecules, as SMILES.")]


@table_options
def compare(
    tables: TableOptions,
    graph: Annotated[
        str | None, typer.Argument(help="A stored graph, or one of `dynagat data list`.")
    ] = None,
    graphs: Molecules = None,
    smiles: Smiles = None,
    time: Annotated[
        str | None,
        typer.Option(help="--task link: column of the edges; the latest are for validation, test."),
    ] = None,
    mechanism: Annotated[
        list[str] | None, typer.Option(help="Some of gcn, gat, gatv2, dpgat; default: all.")
    ] = None,
    seeds: Annotated[list[str] | None, typer.Option(help="Such as 0-9; default: 0-4.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Score that training, the choice of the model and the tests use: accuracy, "
            "balanced_accuracy, macro_f1, roc_auc, average_precision or log_loss; r2, mae or rmse "
            "for numbers; average_precision, roc_auc or hits_20 for links. Default: chosen by the "
            "target."
        ),
    ] = None,
    class_weights: Annotated[
        str | None, typer.Option(help="balanced: every class counts alike in the loss.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="FIELD=VALUE, instead of what the graph's size suggests."),
    ] = None,
    workers: Workers = 1,
    ddp: Ddp = 1,
    ray: RayAddress = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
    device: Device = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the page, the model and the records.")
    ] = Path("comparison"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Compare GCN, GAT, GATv2 and DPGAT on your graph, its links or molecules.

    Trains each of them and says which to use.
    """
    from dynagat import comparison as comparisons
    from dynagat.comparison.plan import as_settings
    from dynagat.comparison.subject import LINKS, MOLECULES, NODES
    from dynagat.data.assumptions import assumptions

    with explain_errors(), _not_left_empty(folder):
        runner = chosen_runner(workers, ray, cpus_per_run, gpus_per_run, device, ddp)
        numbers = parse_numbers(",".join(seeds), "seeds") if seeds else None
        names = words(mechanism) or None
        texts = [*(settings or ()), *as_settings(metric, class_weights)]
        is_links = tables.task == LINK
        subject = LINKS if is_links else NODES if graphs is None else MOLECULES
        comparisons.check_choices(names, numbers, texts, subject)
        if time is not None and not is_links:
            raise ValueError("--time is for --task link")
        if smiles is not None and is_links:
            raise ValueError("--smiles is for --graphs, not for --task link")
        if is_links:
            data = _links(graph, tables, time, graphs, folder)
        else:
            data = _data(graph, tables, graphs, smiles, folder)
        for sentence in assumptions(data):
            note(sentence)
        comparison = comparisons.compare(
            data,
            mechanisms=names,
            seeds=numbers,
            settings=texts,
            workers=runner,
            folder=folder,
            run=run_shown,
            tell=note,
        )
        page = comparisons.write_pages(
            comparison, data, folder, commands=_commands(folder, tables, graphs, smiles)
        )
    print(json.dumps(comparison.to_dict()) if as_json else comparison)
    note(f"page: {page}\nmodel: {folder / 'model'}")


@contextmanager
def _not_left_empty(folder: Path) -> Iterator[None]:
    """Remove a new folder again if nothing was written to it."""
    existed = folder.exists()
    try:
        yield
    finally:
        if not existed:
            with suppress(OSError):
                folder.rmdir()


def _data(
    name: str | None, tables: TableOptions, graphs: Path | None, smiles: str | None, folder: Path
) -> Any:
    """The graph of a name, or what tables hold, which is stored in the comparison's folder."""
    from dynagat.comparison.folder import store_graph
    from dynagat.data.catalog import load

    given = (name, tables.edges or tables.nodes, graphs)
    if sum(each is not None for each in given) != 1:
        raise ValueError(
            "compare takes the name of a graph, or --edges and --nodes, or --graphs and --smiles"
        )
    if smiles is not None and graphs is None:
        raise ValueError("--smiles names a column of --graphs, which is missing")
    if name is not None:
        return load(name)
    if tables.target is None:
        rows = "nodes" if graphs is None else "molecules"
        raise ValueError(f"--target is missing: the column of the {rows} to predict")
    if graphs is not None:
        molecules = _molecules(graphs, smiles, tables)
        return store_graph(folder, lambda path: molecules.save(path, replace=True))
    name = None if tables.nodes is None else tables.nodes.name.split(".")[0]
    return store_graph(folder, lambda path: tables.read(name=name, folder=path, replace=True))


def _links(
    name: str | None, tables: TableOptions, time: str | None, graphs: Path | None, folder: Path
) -> Any:
    """The links of a table or of a stored graph, stored in the comparison's folder."""
    from dynagat.comparison.folder import store_graph
    from dynagat.data.catalog import load
    from dynagat.data.link_split import SHARES, split_links

    if graphs is not None or (name is None) == (tables.edges is None):
        raise ValueError("compare --task link takes --edges, or the name of a graph")
    if name is None:
        data = tables.read_links(time)
    elif (data := load(name)).task.get("kind") != "links":
        if time is not None:
            raise ValueError("--time names a column of --edges, which are missing")
        data = split_links(data, shares=tables.shares or SHARES, seed=tables.split_seed)
    return store_graph(folder, lambda path: data.save(path, replace=True))


def _molecules(graphs: Path, smiles: str | None, tables: TableOptions) -> Any:
    from dynagat.data import read_molecules

    if smiles is None:
        raise ValueError("--smiles is missing: the column of the molecules")
    for name in ("key", "query", "node_id", "directed", "ignore"):
        if getattr(tables, name):
            option = name.removeprefix("node_")
            raise ValueError(f"--{option} is for --edges and --nodes, not for --graphs")
    return read_molecules(
        graphs,
        smiles=smiles,
        target=tables.target,
        task=tables.task,
        split=tables.split,
        shares=tables.shares or SHARES,
        seed=tables.split_seed,
    )


def _commands(
    folder: Path, tables: TableOptions, graphs: Path | None, smiles: str | None
) -> list[str]:
    """How to use the model, for the page."""
    model, edges, nodes = folder / "model", tables.edges or "edges.csv", tables.nodes or "nodes.csv"
    if tables.task == LINK:
        start = f"import dynagat\n\nmodel = dynagat.load_model({str(model)!r})"
        command = shlex.join(["dynagat", "predict", "--model", str(model)])
        ends = [f"{command} --links pairs.csv --out scores.csv", f"{command} --suggest NODE"]
        return [*ends, f"{start}\nmodel.score([(a, b), (c, d)])\nmodel.suggest(node, top=10)"]
    inputs: list[Any] = [] if tables.edges is None else ["--edges", edges, "--nodes", nodes]
    arguments = f"edges={str(edges)!r}, nodes={str(nodes)!r}" if inputs else "graph"
    if graphs is not None:
        inputs, arguments = ["--graphs", graphs, "--smiles", smiles], '["CCO", "c1ccccc1"]'
    parts = ["dynagat", "predict", "--model", model, *inputs, "--out", "predictions.parquet"]
    python = f"model = dynagat.load_model({str(model)!r})\nmodel.predict({arguments}).to_pandas()"
    command = [shlex.join(map(str, parts))] if inputs else []
    return [*command, f"import dynagat\n\n{python}"]
