"""Checks of command-line options that several benches share."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import typer


def require_known(given: Iterable[str] | None, known: Collection[str]) -> None:
    """Raise BadParameter with the known names if an unknown one is given."""
    if unknown := sorted(set(given or ()) - set(known)):
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
