"""dynagat predict: apply a trained model to other data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynagat.benchmarks import BENCHMARKS, find
from dynagat.cli.console import explain_errors, note
from dynagat.cli.graphs import Molecules
from dynagat.cli.records import DEFAULT_STORE, StoreFile
from dynagat.experiment import Store

if TYPE_CHECKING:
    from dynagat.comparison import Predictions
    from dynagat.data import GraphData

Edges = Annotated[Path | None, typer.Option(help="CSV or Parquet with a row for each edge.")]
NodeTable = Annotated[Path | None, typer.Option(help="CSV or Parquet with a row for each node.")]


def predict(
    out_file: Annotated[Path, typer.Option("--out", help=".parquet or .csv")],
    model: Annotated[Path | None, typer.Option(help="The model's folder.")] = None,
    graph: Annotated[str | None, typer.Argument(help="A stored graph, instead of tables.")] = None,
    edges: Edges = None,
    nodes: NodeTable = None,
    key: Annotated[str | None, typer.Option(help="As in compare; default: as trained.")] = None,
    query: Annotated[str | None, typer.Option(help="As in compare; default: as trained.")] = None,
    node_id: Annotated[
        str | None, typer.Option("--id", help="As in compare; default: as trained.")
    ] = None,
    graphs: Molecules = None,
    smiles: Annotated[
        str | None, typer.Option(help="Column of the molecules; default: as trained.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Instead of a model: the key of a run on molecules.")
    ] = None,
    store: StoreFile = DEFAULT_STORE,
) -> None:
    """Apply a trained model to tables, to a graph or to molecules.

    Tables must have the columns that the model was trained on. New nodes and edges are fine.
    """
    with explain_errors():
        if (model is None) == (run is None):
            raise ValueError("predict takes --model, or --run and --store")
        others = {"graph": graph, "edges": edges, "nodes": nodes}
        columns = {"key": key, "query": query, "id": node_id}
        if model is None:
            _check_no(others | columns, "--run takes --graphs and --smiles")
            predictions = _of_run(str(run), store, graphs, smiles)
        else:
            predictions = _of_model(model, others, columns, graphs, smiles)
        path = predictions.save(out_file)
    note(f"{len(predictions):,} predictions: {path}")


def _check_no(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{why}, but no {name}")


def _of_model(
    folder: Path,
    others: dict[str, Any],
    columns: dict[str, str | None],
    graphs: Path | None,
    smiles: str | None,
) -> Predictions:
    from dynagat.comparison import MoleculeModel, load_model
    from dynagat.data.catalog import load

    model = load_model(folder)
    if isinstance(model, MoleculeModel):
        _check_no(others | columns, f"{folder} predicts molecules and takes --graphs")
        return model.predict(_molecules(graphs, smiles or model.smiles))
    _check_no({"graphs": graphs, "smiles": smiles}, f"{folder} predicts nodes")
    name = others.pop("graph")
    return model.predict(None if name is None else load(name), **others, **columns)


def _of_run(key: str, path: Path, graphs: Path | None, smiles: str | None) -> Predictions:
    from dynagat.comparison.runs import predict_molecules
    from dynagat.report.subjects import find_run, weights_of

    with Store(path, must_exist=True) as store:
        record = find_run(store, key, BENCHMARKS)
        weights = weights_of(record, store)
    return predict_molecules(record, weights, find(record.benchmark), _molecules(graphs, smiles))


def _molecules(graphs: Path | None, smiles: str | None) -> GraphData:
    from dynagat.data import read_molecules
    from dynagat.data.assumptions import assumptions

    if graphs is None or smiles is None:
        missing, what = ("graphs", "the table") if graphs is None else ("smiles", "the column")
        raise ValueError(f"--{missing} is missing: {what} of the molecules")
    molecules = read_molecules(graphs, smiles=smiles)
    for sentence in assumptions(molecules):
        note(sentence)
    return molecules
