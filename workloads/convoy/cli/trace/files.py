"""Files of traces: those that the user names, and those that commands write."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from convoy.cli.cluster import Failure
from convoy_workloads.traces.findings import printable

if TYPE_CHECKING:
    from convoy_workloads.traces.trace import Trace

MAX_FILES = 4096
MAX_NAME = 60
ENDINGS = (".et", ".et.gz")
TORCH_NAME = re.compile(r"(host|kineto)\.(\d{1,9})\.json(?:\.gz)?")
"""Names of the files that torch's ExecutionTraceObserver and its profiler write for a rank."""
_NUMBER = re.compile(r"(\d+)")

Paths = Annotated[
    list[Path],
    typer.Argument(metavar="PATH...", help="Trace files, or folders with files *.et and *.et.gz."),
]
IgnoreDangling = Annotated[
    bool,
    typer.Option("--ignore-dangling", help="Drop dependencies on nodes that are not in the trace."),
]
Gzip = Annotated[bool, typer.Option("--gzip", help="Compress the files, as PREFIX.RANK.et.gz.")]
Prefix = Annotated[str, typer.Option(help="Beginning of the files' names: PREFIX.RANK.et.")]


def trace_files(paths: Iterable[Path]) -> list[Path]:
    """Return the trace files in `paths` and in the folders among them, those of a folder in the order of
    their numbers. Raises Failure without any.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = list(path.iterdir())
            traces = sorted((one for one in inside if one.name.endswith(ENDINGS)), key=_by_numbers)
            if not traces:
                torch = any(TORCH_NAME.fullmatch(one.name) for one in inside)
                hint = f". It has traces of torch: first `convoy trace convert {path} --out chakra`"
                raise Failure(f"{path}: the folder has no file *.et or *.et.gz{hint if torch else ''}")
            found += traces
        else:
            found.append(path)
    if len(found) > MAX_FILES:
        raise Failure(f"{len(found)} files; at most {MAX_FILES} are allowed")
    return found


def _by_numbers(path: Path) -> list[tuple[str, int]]:
    """Return the sort key of a file's name, in which rank 2 comes before rank 10."""
    parts = _NUMBER.split(path.name)
    numbers = [*map(int, parts[1::2]), -1]
    return list(zip(parts[::2], numbers, strict=True))


def load_trace(path: Path) -> Trace:
    """Return the trace in a file. Raises Failure with the file, and the byte or node that is wrong."""
    from convoy_workloads.traces.findings import InvalidTrace  # noqa: PLC0415
    from convoy_workloads.traces.wire.reader import read_whole  # noqa: PLC0415

    try:
        return read_whole(path)
    except InvalidTrace as error:
        raise Failure(str(error)) from error


def load_checked(path: Path, ignore_dangling: bool) -> Trace:
    """Return the trace in a file, without dangling dependencies if `ignore_dangling`.

    Raises Failure for findings of `convoy trace validate`, apart from those that do not change the times.
    """
    from convoy_workloads.traces.findings import InvalidTrace, Rule  # noqa: PLC0415
    from convoy_workloads.traces.replay import drop_dangling  # noqa: PLC0415
    from convoy_workloads.traces.validate.one_trace import MINOR, check_trace  # noqa: PLC0415

    trace = load_trace(path)
    if ignore_dangling and (count := drop_dangling(trace)):
        typer.echo(f"{path}: dropped {count} dependencies on nodes that are not in the trace", err=True)
    found = check_trace(trace)
    for one in found:
        if one.rule in MINOR:
            typer.echo(f"{path}: {one.line()}", err=True)
    if grave := [one for one in found if one.rule not in MINOR]:
        dangling = any(one.rule is Rule.DANGLING_DEPENDENCY for one in grave)
        hint = "; --ignore-dangling drops such dependencies" if dangling else ""
        raise Failure(f"{InvalidTrace(grave, str(path))}{hint}")
    return trace


def write_trace(trace: Trace, folder: Path, prefix: str, compress: bool) -> tuple[Path, int]:
    """Write the trace of a rank into a folder. Return the file and its bytes. Raises Failure if it fails."""
    from convoy_workloads.traces.wire.writer import write  # noqa: PLC0415

    path = folder / f"{prefix}.{trace.rank or 0}.et{'.gz' if compress else ''}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return path, write(trace, path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from error


def name_of(trace: Trace, path: Path) -> str:
    """Return the rank of a trace; the file's name if there is no rank."""
    return path.name if trace.rank is None else f"rank {trace.rank}"


def cell(text: str) -> str:
    """Return foreign text for a table: short, printable, and without the table's own markup."""
    short = text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 3]}..."
    return escape(printable(short))


def json_of(findings: Iterable[Any], path: Path | None = None) -> list[dict[str, Any]]:
    """Return findings as JSON values, with their file."""
    named = {} if path is None else {"file": str(path)}
    return [{**named, **one.as_json()} for one in findings]
