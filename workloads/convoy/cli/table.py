"""Tables for the terminal. They are limited to the width of the terminal. Output to a file or pipe is not
limited.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import typer
from rich.console import Console
from rich.table import Table

GAP = 2
"""Number of spaces between two columns."""
UNLIMITED = 100_000
_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def fitting_columns(widths: Mapping[str, int], hide_order: Sequence[str], width: int | None) -> list[str]:
    """Return the names of the columns that fit in `width` characters, in the order of `widths`. If `width`
    is None, all columns fit.

    Columns are hidden one after another, in the order of `hide_order`, until the remaining columns fit.
    """
    kept = dict(widths)
    for head in hide_order:
        if width is None or sum(kept.values()) + GAP * (len(kept) - 1) <= width:
            break
        kept.pop(head, None)
    return list(kept)


def terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if stdout is a file or pipe."""
    return Console().width if sys.stdout.isatty() else None


def new_table() -> Table:
    """Return an empty table without borders."""
    return Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))


def format_bytes(size: int) -> str:
    """Return a number of bytes in short form, such as `512` or `1.5Gi`."""
    return next((f"{size / length:.1f}{unit}" for unit, length in _UNITS if size >= length), str(size))


def print_table(table: Table) -> None:
    """Print a table on stdout."""
    console = Console(width=terminal_width() or UNLIMITED)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())
