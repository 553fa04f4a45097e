"""The command `convoy`, also installed as `kubectl convoy`: run, watch and control jobs from a terminal."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from convoy.cli import change, check, engine, lint, load, logs, quantize, show, simulate, what_if, why
from convoy.cli.checkpoint.app import app as checkpoint
from convoy.cli.cluster import Commands
from convoy.cli.data import app as data
from convoy.cli.experiment.app import app as experiment
from convoy.cli.guard.app import app as guard
from convoy.cli.rollout import app as rollout
from convoy.cli.spot.app import app as spot
from convoy.cli.topology.app import app as topology
from convoy.cli.trace.app import app as trace

app = typer.Typer(
    name="convoy",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
)
app.command("run")(check.run)
app.command("validate")(check.validate)
app.command("lint")(lint.lint)
app.command("get")(show.get)
app.command("why")(why.why)
app.command("logs")(logs.logs)
app.command("suspend")(change.suspend)
app.command("resume")(change.resume)
app.command("restart")(change.restart)
app.command("delete")(change.delete)
app.command("engine")(engine.engine)
app.add_typer(checkpoint, name="checkpoint")
app.add_typer(data, name="data")
app.add_typer(experiment, name="experiment")
app.add_typer(guard, name="guard")
app.add_typer(rollout, name="rollout")
app.add_typer(spot, name="spot")
app.add_typer(topology, name="topology")
app.add_typer(trace, name="trace")
app.command("quantize")(quantize.quantize)
app.command("load")(load.load)
app.command("simulate")(simulate.simulate)
app.command("what-if")(what_if.what_if)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        typer.echo(f"convoy {metadata.version('convoy-operator')}")
    except metadata.PackageNotFoundError:
        typer.echo("convoy from a checkout that is not installed")
    raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
]


@app.callback()
def options(version: Version = False) -> None:
    """Run, watch and control training and serving jobs on Kubernetes."""


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
