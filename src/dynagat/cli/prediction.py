"""dynagat predict: apply a trained model to other data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer

from dynagat.benchmarks import BENCHMARKS, find
from dynagat.cli.console import explain_errors, note
from dynagat.cli.graphs import Molecules
from dynagat.cli.records import DEFAULT_STORE, StoreFile
from dynagat.cli.workers import Device
from dynagat.experiment import Store
from dynagat.placement import find_device

if TYPE_CHECKING:
    from dynagat.comparison import Predictions
    from dynagat.data import GraphData

Edges = Annotated[Path | None, typer.Option(help="CSV or Parquet with a row for each edge.")]
NodeTable = Annotated[Path | None, typer.Option(help="CSV or Parquet with a row for each node.")]


def predict(
    out_file: Annotated[
        Path | None, typer.Option("--out", help=".parquet or .csv; default for links: print them.")
    ] = None,
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
    links: Annotated[
        Path | None, typer.Option(help="CSV or Parquet with a row per pair of nodes to score.")
    ] = None,
    suggest: Annotated[
        str | None, typer.Option(help="Id of a node: its most probable new links.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many to suggest.")] = 10,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print scores of links as JSON.")] = False,
) -> None:
    """Apply a trained model to tables, a graph or molecules, or score links.

    Tables must have the columns that the model was trained on. New nodes and edges are fine.
    """
    with explain_errors():
        place = find_device("cpu" if device is None else device)
        if (model is None) == (run is None):
            raise ValueError("predict takes --model, or --run and --store")
        others = {"graph": graph, "edges": edges, "nodes": nodes}
        columns = {"key": key, "query": query, "id": node_id}
        if links is not None or suggest is not None:
            given = others | columns | {"graphs": graphs, "smiles": smiles, "run": run}
            _check_no(given, "--links and --suggest take --model")
            _score_links(model, links, suggest, top, out_file, as_json, place)
            return
        loaded = None if model is None else _load(model, place)
        if out_file is None:
            raise ValueError("--out is missing: the file of the predictions, .parquet or .csv")
        if model is None or loaded is None:
            _check_no(others | columns, "--run takes --graphs and --smiles")
            predictions = _of_run(str(run), store, graphs, smiles, place)
        else:
            predictions = _of_model(loaded, model, others, columns, graphs, smiles)
        path = predictions.save(out_file)
    note(f"{len(predictions):,} predictions: {path}")


def _score_links(
    folder: Path | None,
    links: Path | None,
    node: str | None,
    top: int,
    out_file: Path | None,
    as_json: bool,
    device: torch.device,
) -> None:
    from dynagat.comparison import LinkModel, load_model

    if folder is None or (links is None) == (node is None):
        raise ValueError("predict takes --model and either --links or --suggest")
    model = load_model(folder).to(device)
    if not isinstance(model, LinkModel):
        raise ValueError(f"{folder} does not predict links: compare with --task link")
    scores = model.suggest(node, top=top) if links is None else model.score(links)
    if out_file is not None:
        note(f"{len(scores):,} scores: {scores.save(out_file)}")
    if as_json or out_file is None:
        print(json.dumps(scores.to_dict()) if as_json else scores)


def _check_no(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{why}, but no {name}")


def _load(folder: Path, device: torch.device) -> Any:
    """A model of nodes or molecules."""
    from dynagat.comparison import LinkModel, load_model

    model = load_model(folder).to(device)
    if isinstance(model, LinkModel):
        raise ValueError(f"{folder} predicts links and takes --links or --suggest")
    return model


def _of_model(
    model: Any,
    folder: Path,
    others: dict[str, Any],
    columns: dict[str, str | None],
    graphs: Path | None,
    smiles: str | None,
) -> Predictions:
    from dynagat.comparison import MoleculeModel
    from dynagat.data.catalog import load

    if isinstance(model, MoleculeModel):
        _check_no(others | columns, f"{folder} predicts molecules and takes --graphs")
        return model.predict(_molecules(graphs, smiles or model.smiles))
    _check_no({"graphs": graphs, "smiles": smiles}, f"{folder} predicts nodes")
    name = others.pop("graph")
    return model.predict(None if name is None else load(name), **others, **columns)


def _of_run(
    key: str, path: Path, graphs: Path | None, smiles: str | None, device: torch.device
) -> Predictions:
    from dynagat.comparison.runs import predict_molecules
    from dynagat.report.subjects import find_run, weights_of

    with Store(path, must_exist=True) as store:
        record = find_run(store, key, BENCHMARKS, others="")
        weights = weights_of(record, store)
    molecules = _molecules(graphs, smiles)
    return predict_molecules(record, weights, find(record.benchmark), molecules, device)


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
