"""Command-line options that several benches use."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import typer


def require_known(given: Iterable[str] | None, known: Collection[str]) -> None:
    """Raise BadParameter, which lists the known names, if `given` has an unknown name."""
    if unknown := sorted(set(given or ()) - set(known)):
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")


def chosen(only: Collection[str] | None, known: Iterable[str]) -> list[str]:
    """Return the known names that the option `--only` chooses, in their order; all without the option. Raises
    BadParameter for an unknown name.
    """
    names = list(known)
    require_known(only, names)
    return [name for name in names if not only or name in only]
