"""dynagat: the command line. Results on standard output, progress on standard error."""

import typer

from dynagat.cli.benchmarks import add_benchmarks, add_own_commands
from dynagat.cli.data import data_app
from dynagat.cli.graphs import compare
from dynagat.cli.inspect import inspect
from dynagat.cli.planning import plan
from dynagat.cli.prediction import predict
from dynagat.cli.records import records_app
from dynagat.cli.theory import theory
from dynagat.cli.tuning import tune

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Graph attention: which mechanism for your graph, and the paper's benchmarks.",
)
for command in (compare, predict):
    app.command()(command)
app.add_typer(data_app, name="data")
add_benchmarks(app)
for command in (tune, inspect, plan, theory):
    app.command()(command)
app.add_typer(records_app, name="records")
add_own_commands(app)
