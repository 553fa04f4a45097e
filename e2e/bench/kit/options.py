"""Checks of command-line options that several benches use."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import typer


def require_known(given: Iterable[str] | None, known: Collection[str]) -> None:
    """Raise BadParameter, which lists the known names, if `given` has an unknown name."""
    if unknown := sorted(set(given or ()) - set(known)):
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
