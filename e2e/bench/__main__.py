"""Command line of the benches: `python -m e2e.bench NAME`."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

from e2e.bench.benches import BENCHES


class LazyCommands(TyperGroup):
    """The commands of `BENCHES`. A command's module is imported only when that command runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of `BENCHES`."""
        return [bench.name for bench in BENCHES]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a bench, or None for an unknown name."""
        module = next((bench.module for bench in BENCHES if bench.name == cmd_name), None)
        if module is None:
            return None
        single = typer.Typer(add_completion=False)
        single.command(name=cmd_name)(importlib.import_module(module).run)
        return typer.main.get_command(single)


app = typer.Typer(
    cls=LazyCommands, no_args_is_help=True, add_completion=False, help="Measure Convoy on local clusters."
)


@app.callback()
def _benches() -> None:
    """Do nothing: this callback makes Typer treat each bench as a subcommand."""


if __name__ == "__main__":
    app()
