"""A progress bar on stderr for long transfers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import TransferSpeedColumn as SpeedColumn


@contextlib.contextmanager
def progress_bar(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for `size` bytes on stderr. Yield a function that adds transferred bytes to the
    bar; any thread may call the function.

    Nothing is shown if stderr is not a terminal.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        SpeedColumn(),
    )
    console = Console(stderr=True)
    shown = Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not sys.stderr.isatty()
    )
    with shown:
        task = shown.add_task(what, total=size)
        yield lambda more: shown.advance(task, more)
