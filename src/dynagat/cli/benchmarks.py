"""The paper's benchmarks: list, run, inspect, report, theory, records."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from dynagat.analysis.attentive import look
from dynagat.analysis.glance import glance
from dynagat.benchmarks import BENCHMARKS, find
from dynagat.cli.answering import answering, err, out
from dynagat.cli.running import run_shown
from dynagat.experiment import Benchmark, Job, Record, Store, as_published, grid
from dynagat.experiment.benchmark import Look
from dynagat.experiment.settings import as_text, parse_numbers, parse_settings, resolve
from dynagat.experiment.store import read_lines
from dynagat.files import write_text

records_app = typer.Typer(no_args_is_help=True, help="Move records as JSON lines.")

SHOWN = ("benchmark", "mechanism", "heads", "seed", "settings", "metrics", "seconds",
         "peak_memory_bytes", "converged", "versions")  # fmt: skip

StoreFile = Annotated[Path, typer.Option("--store", help="The SQLite file of records.")]
DEFAULT_STORE = Path("dynagat.sqlite")
LOOKS: dict[str, Look | None] = {"whole": look, "glance": glance, "none": None}


def list_benchmarks() -> None:
    """Benchmarks, their mechanisms, and whether their data are there."""
    table = Table("benchmark", "what", "mechanisms (heads)", "data", box=None, pad_edge=False)
    for benchmark in BENCHMARKS.values():
        heads = benchmark.mechanisms.items()
        mechanisms = ", ".join(f"{name} ({'/'.join(map(str, n))})" for name, n in heads)
        data = benchmark.data.missing() or "present"
        table.add_row(benchmark.name, benchmark.title, mechanisms, data)
    out.print(table)


def run(
    benchmark: str,
    mechanism: Annotated[list[str] | None, typer.Option(help="Default: all it compares.")] = None,
    heads: Annotated[list[str] | None, typer.Option(help="Such as 1,8; default: its own.")] = None,
    seeds: Annotated[list[str] | None, typer.Option(help="Such as 0-9; default: its own.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="FIELD=VALUE; k=4-20 or lr=0.1,0.01 run them all."),
    ] = None,
    published: Annotated[
        bool, typer.Option("--as-published", help="What the paper's released code does.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Processes; the cores are shared out.")] = 1,
    store: StoreFile = DEFAULT_STORE,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A short run, to see that it works.")
    ] = False,
    inspect_runs: Annotated[
        bool, typer.Option("--inspect", help="Also print how attentive each run's heads are.")
    ] = False,
    microscope: Annotated[
        Literal["whole", "glance", "none"] | None, typer.Option(help="How runs are looked at.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One record per line.")] = False,
) -> None:
    """Run a benchmark; runs that the store has are not repeated."""
    with answering():
        asked = find(benchmark)
        looks = LOOKS[microscope or asked.microscope]
        jobs = _jobs(asked, settings or [], published, mechanism, heads, seeds, smoke, looks)
        with Store(store) as records:
            run_shown(jobs, records, workers)
            found = [records.get(job.key) for job in jobs]
            done = [record for record in found if record is not None]
            _show(done, asked, as_json, inspect_runs)
            if inspect_runs and not as_json:
                _show_attention(done, records)


def variants(
    benchmark: Benchmark, mechanism: str, assignments: list[str], published: bool, smoke: bool
) -> list[Benchmark]:
    """The benchmark under all the settings asked for, of one mechanism."""
    settings = benchmark.base(mechanism, named_dataset(assignments))
    settings = as_published(settings) if published else settings
    if smoke:
        (settings,) = grid(settings, list(benchmark.smoke))
    asked = assignments if smoke else [*_swept(benchmark, assignments), *assignments]
    return [benchmark.with_settings(each) for each in grid(settings, asked)]


def _swept(benchmark: Benchmark, assignments: list[str]) -> list[str]:
    """The values that the benchmark goes through where nobody sets one."""
    given = {path for path, _ in parse_settings(benchmark.settings, assignments)}
    return [
        f"{name}={','.join(map(as_text, values))}"
        for name, values in benchmark.sweep.items()
        if resolve(benchmark.settings, name) not in given
    ]


def named_dataset(assignments: list[str]) -> str | None:
    """What "dataset=NAME" says last, if anything does."""
    named = [text.partition("=")[2].strip() for text in assignments if _names(text, "data.dataset")]
    return named[-1] if named else None


def _names(text: str, path: str) -> bool:
    """Whether "name=value" sets what is at a dotted path."""
    return text.partition("=")[0].strip() in (path, path.partition(".")[2])


def _jobs(
    asked: Benchmark,
    assignments: list[str],
    published: bool,
    mechanisms: list[str] | None,
    heads: list[str] | None,
    seeds: list[str] | None,
    smoke: bool,
    looks: Look | None,
) -> list[Job]:
    names = ",".join(mechanisms or asked.mechanisms).split(",")
    for name in names:
        if name not in asked.mechanisms:
            known = ", ".join(asked.mechanisms)
            raise ValueError(f"{asked.name} has no mechanism {name!r}; it has {known}")
    numbers = parse_numbers(",".join(seeds), "seeds") if seeds else list(asked.seeds)
    numbers = numbers[:1] if smoke and not seeds else numbers
    asked_heads = parse_numbers(",".join(heads), "heads") if heads else None
    usual = asked.heads(named_dataset(assignments), published)
    are_set = any(_names(text, "network.heads") for text in assignments)
    return [
        Job(variant.with_heads(count), name, seed, looks)
        for name in names
        for variant in variants(asked, name, assignments, published, smoke)
        for count in asked_heads or _own_heads(variant, name, are_set) or usual[name]
        for seed in numbers
    ]


def _own_heads(variant: Benchmark, mechanism: str, are_set: bool) -> tuple[int, ...]:
    """Those that its settings ask for, if somebody set or tuned them."""
    is_tuned = "heads" in variant.tuned.get(mechanism, {})
    return (variant.network.heads,) if are_set or is_tuned else ()


def _show(records: list[Record], benchmark: Benchmark, as_json: bool, with_attention: bool) -> None:
    if not as_json:
        from dynagat import report as reports  # only here and below, for it is slow to import

        reports.print_tables(out, records, [benchmark])
        return
    for record in records:
        whole = json.loads(record.to_json())
        told = {name: whole[name] for name in SHOWN}
        if with_attention:
            told["microscope"] = whole["exhibits"].get("microscope")
        print(json.dumps(told))


def _show_attention(records: list[Record], store: Store) -> None:
    """A table for each run, from the weights that the store keeps; or why there is none."""
    from dynagat.report import subjects

    for record in records:
        refused = record.exhibits.get("microscope", {}).get("refused")
        found = refused or subjects.of_run(record, store).look()
        print(f"{subjects.title_of(record)} (run {record.key[:8]})\n{found}\n")


def inspect(
    subject: Annotated[
        str, typer.Argument(help="A benchmark or a run's key; model.py; or weights.pt.")
    ],
    mechanism: Annotated[str | None, typer.Option(help="Of a benchmark's run.")] = None,
    heads: Annotated[int | None, typer.Option(help="Of a benchmark's run.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of a benchmark's run.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Of a benchmark's run: FIELD=VALUE.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="For weights.pt: .npz or .pt with x and edge_index.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="For model.py: weights to load into its model.")
    ] = None,
    page: Annotated[Path, typer.Option("--out", help="The page.")] = Path("inspect.html"),
    nodes: Annotated[int, typer.Option(help="How many nodes the page embeds.")] = 2000,
    store: StoreFile = DEFAULT_STORE,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers, as JSON.")] = False,
) -> None:
    """How attentive is a model? A table of its heads, and a page to look into them.

    model.py exposes `model` and `data`, as how_attentive takes them.
    """
    from dynagat.report import subjects
    from dynagat.report.microscope import write_microscope

    with answering():
        if data is not None and not subjects.is_checkpoint(subject):
            raise ValueError(f"--data goes with a checkpoint, but {subject} is none")
        is_file = subject.endswith(".py") or subjects.is_checkpoint(subject)
        asked_of_run = {"mechanism": mechanism, "heads": heads, "seed": seed, "set": settings}
        for name, value in asked_of_run.items() if is_file else ():
            if value is not None:
                raise ValueError(f"--{name} goes with a run of the store, but {subject} is a file")
        if checkpoint is not None and not subject.endswith(".py"):
            raise ValueError(f"--checkpoint goes with a Python file, but {subject} is none")
        if subject.endswith(".py"):
            asked = subjects.of_file(Path(subject), checkpoint)
        elif subjects.is_checkpoint(subject):
            asked = subjects.of_checkpoint(Path(subject), data)
        else:
            with Store(store, must_exist=True) as kept:
                record = subjects.find_run(kept, subject, mechanism, heads, seed, settings or [])
                asked = subjects.of_run(record, kept)
        found = asked.look()
        print(json.dumps(found.to_dict()) if as_json else found)
        path = write_microscope(found, page, title=asked.title, names=asked.names, nodes=nodes)
    err.print(f"page: {path}", markup=False, highlight=False, soft_wrap=True)


def report(
    benchmarks: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    out_folder: Annotated[Path, typer.Option("--out", help="The page's folder.")] = Path("report"),
    store: Annotated[
        Path | None, typer.Option(help="Default: dynagat.sqlite, or none beside --records.")
    ] = None,
    records: Annotated[list[Path] | None, typer.Option(help="JSON lines of records.")] = None,
) -> None:
    """Tables of the records, and a page with the figures that needs no network."""
    from dynagat import report as reports

    with answering():
        asked = [find(name) for name in benchmarks or BENCHMARKS]
        found = _gather(store, records or [], [each.name for each in asked])
        reports.print_tables(out, found, asked)
        page = reports.write_report(found, asked, out_folder)
    out.print(f"page: {page}", markup=False, soft_wrap=True)


def _gather(store: Path | None, files: list[Path], names: list[str]) -> list[Record]:
    """Those of the files and of the store; of the default store only if there are no files."""
    found: dict[str, Record] = {}
    for path in files:
        for record in read_lines(path.read_text().splitlines(), str(path)):
            found.setdefault(record.key, record)
    if store is not None or not files:
        with Store(store or DEFAULT_STORE, must_exist=True) as kept:
            for record in kept.records(names):
                found.setdefault(record.key, record)
    return [record for record in found.values() if record.benchmark in names]


def theory(
    as_json: Annotated[bool, typer.Option("--json", help="One certificate per line.")] = False,
) -> None:
    """The paper's theorems, each shown by a witness that running the layers checks."""
    from dynagat.analysis import complexity
    from dynagat.analysis import theory as proofs

    is_whole = True
    for certify in (proofs.certificates, complexity.certificates):
        for certificate in certify():
            print(json.dumps(asdict(certificate)) if as_json else f"{certificate}\n", flush=True)
            is_whole &= certificate.shown
    if not is_whole:
        raise typer.Exit(1)


@records_app.command("export")
def export_records(
    benchmarks: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Default: standard output.")
    ] = None,
    store: StoreFile = DEFAULT_STORE,
) -> None:
    """Write records as JSON lines."""
    with answering(), Store(store, must_exist=True) as kept:
        names = [find(name).name for name in benchmarks or ()]
        text = "".join(f"{record.to_json()}\n" for record in kept.records(names))
        if out_file is None:
            sys.stdout.write(text)
        else:
            write_text(out_file, text)


@records_app.command("import")
def import_records(files: list[Path], store: StoreFile = DEFAULT_STORE) -> None:
    """Add records from JSON lines; all of a file's, or none if a line is bad."""
    with answering(), Store(store) as kept:
        for path in files:
            new = kept.import_lines(path.read_text().splitlines(), str(path))
            out.print(f"{path}: {new} new", markup=False, soft_wrap=True)


def add_benchmarks(app: typer.Typer) -> None:
    app.command("list")(list_benchmarks)
    for command in (run, inspect, report, theory):
        app.command()(command)
    app.add_typer(records_app, name="records")
