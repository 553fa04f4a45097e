"""`convoy`, also installed as `kubectl convoy`: run, watch and steer jobs from a terminal."""

from __future__ import annotations

import typer

from convoy.cli import change, check, logs, show

app = typer.Typer(
    name="convoy",
    help="Training jobs that keep moving: run, watch and steer them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command("run")(check.run)
app.command("validate")(check.validate)
app.command("get")(show.get)
app.command("why")(show.why)
app.command("logs")(logs.logs)
app.command("suspend")(change.suspend)
app.command("resume")(change.resume)
app.command("restart")(change.restart)
app.command("delete")(change.delete)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
