"""Your own graph: dynagat compare | predict."""

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
from dynagat.cli.tables import TableOptions, table_options
from dynagat.experiment.settings import parse_numbers

Edges = Annotated[Path | None, typer.Option(help="CSV or Parquet with a row for each edge.")]
NodeTable = Annotated[Path | None, typer.Option(help="CSV or Parquet with a row for each node.")]


def add_graphs(app: typer.Typer) -> None:
    app.command()(compare)
    app.command()(predict)


@table_options
def compare(
    tables: TableOptions,
    graph: Annotated[
        str | None, typer.Argument(help="A stored graph, or one of `dynagat data list`.")
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
            "for numbers. Default: chosen by the target."
        ),
    ] = None,
    class_weights: Annotated[
        str | None, typer.Option(help="balanced: every class counts alike in the loss.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="FIELD=VALUE, instead of what the graph's size suggests."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of processes, which share the cores.")] = 1,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the page, the model and the records.")
    ] = Path("comparison"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Compare GCN, GAT, GATv2 and DPGAT on your graph.

    Trains each of them and says which to use.
    """
    from dynagat import comparison as comparisons
    from dynagat.comparison.plan import as_settings
    from dynagat.data.assumptions import assumptions

    with explain_errors(), _not_left_empty(folder):
        numbers = parse_numbers(",".join(seeds), "seeds") if seeds else None
        names = words(mechanism) or None
        texts = [*(settings or ()), *as_settings(metric, class_weights)]
        comparisons.check_choices(names, numbers, texts)
        data = _graph(graph, tables, folder)
        for sentence in assumptions(data):
            note(sentence)
        comparison = comparisons.compare(
            data,
            mechanisms=names,
            seeds=numbers,
            settings=texts,
            workers=workers,
            folder=folder,
            run=run_shown,
            tell=note,
        )
        page = comparisons.write_pages(comparison, data, folder, commands=_commands(folder, tables))
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


def _graph(name: str | None, tables: TableOptions, folder: Path) -> Any:
    """The graph of a name, or of tables, which is stored in the comparison's folder."""
    from dynagat.comparison.folder import store_graph
    from dynagat.data.catalog import load

    if (name is None) == (tables.edges is None and tables.nodes is None):
        raise ValueError("compare takes the name of a graph, or --edges and --nodes")
    if name is not None:
        return load(name)
    if tables.target is None:
        raise ValueError("--target is missing: the column of the nodes to predict")
    name = None if tables.nodes is None else tables.nodes.name.split(".")[0]
    return store_graph(folder, lambda path: tables.read(name=name, folder=path, replace=True))


def _commands(folder: Path, tables: TableOptions) -> list[str]:
    """How to use the model, for the page."""
    model, edges, nodes = folder / "model", tables.edges or "edges.csv", tables.nodes or "nodes.csv"
    parts = ["dynagat", "predict", "--model", model, "--edges", edges, "--nodes", nodes, "--out",
             "predictions.parquet"]  # fmt: skip
    arguments = "graph" if tables.edges is None else f"edges={str(edges)!r}, nodes={str(nodes)!r}"
    python = f"model = dynagat.load_model({str(model)!r})\nmodel.predict({arguments}).to_pandas()"
    command = [] if tables.edges is None else [shlex.join(map(str, parts))]
    return [*command, f"import dynagat\n\n{python}"]


def predict(
    model: Annotated[Path, typer.Option(help="The model's folder.")],
    out_file: Annotated[Path, typer.Option("--out", help=".parquet or .csv")],
    graph: Annotated[str | None, typer.Argument(help="A stored graph, instead of tables.")] = None,
    edges: Edges = None,
    nodes: NodeTable = None,
    key: Annotated[str | None, typer.Option(help="As in compare; default: as trained.")] = None,
    query: Annotated[str | None, typer.Option(help="As in compare; default: as trained.")] = None,
    node_id: Annotated[
        str | None, typer.Option("--id", help="As in compare; default: as trained.")
    ] = None,
) -> None:
    """Apply a trained model to tables or to a graph.

    Tables must have the columns that the model was trained on. New nodes and edges are fine.
    """
    from dynagat.comparison import load_model
    from dynagat.data.catalog import load

    with explain_errors():
        trained = load_model(model)
        data = None if graph is None else load(graph)
        predictions = trained.predict(
            data, edges=edges, nodes=nodes, key=key, query=query, id=node_id
        )
        path = predictions.save(out_file)
    note(f"{len(predictions):,} predictions: {path}")
