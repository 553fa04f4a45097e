"""The group of commands `convoy experiment`."""

from __future__ import annotations

import typer

from convoy.cli.experiment import report, rerun, status, stop, try_, verify

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Try, watch and stop experiments, fetch their reports, run them again and verify them.",
)
app.command("try")(try_.try_experiment)
app.command("status")(status.status)
app.command("stop")(stop.stop)
app.command("report")(report.report)
app.command("rerun")(rerun.rerun)
app.command("verify")(verify.verify)
