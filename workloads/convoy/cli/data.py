"""The commands data pack and data index, which make archives for convoy.data.PackedFiles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.checkpoint.progress import progress_bar
from convoy.cli.cluster import Failure
from convoy.cli.table import format_bytes
from convoy_workloads.data.packed_files import pack as packing
from convoy_workloads.data.packed_files.errors import PackedFilesError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Pack many small files into archives that programs read fast.",
)


@app.command("pack")
def pack(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with the files, at any depth.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.tar", help="Archive to write, outside of the folder.")],
    archives: Annotated[
        int,
        typer.Option(
            "--archives",
            min=1,
            max=packing.MAX_ARCHIVES,
            help="Number of archives of about equal size. OUT-0.tar is the first of several.",
        ),
    ] = 1,
    force: Annotated[bool, typer.Option("--force", help="Replace existing archives.")] = False,
) -> None:
    """Pack a folder of many small files into ordinary tar archives.

    The files are sorted by name, so equal folders give equal bytes. Symbolic links to files are packed as
    files. An index beside each archive spares the readers a scan. Programs read the files with
    convoy.data.PackedFiles, and `tar` unpacks them.
    """
    with _errors():
        sources = packing.find_sources(folder)
        total = sum(one.size for one in sources)
        with progress_bar(f"packing {len(sources)} files", total) as progress:
            found = packing.pack(folder, out, archives, force=force, progress=progress, sources=sources)
    for one in found:
        _print(one)


@app.command("index")
def index(
    archives: Annotated[list[Path], typer.Argument(metavar="ARCHIVE.tar...", help="Archives of any tar.")],
) -> None:
    """Check tar archives and write an index beside each.

    PackedFiles also reads archives without an index, but scans them each time. An index counts until the
    size or the modification time of its archive changes.
    """
    for archive in archives:
        with _errors():
            found = packing.index_archive(archive)
        _print(found)


def _print(found: packing.Packed) -> None:
    count = len(found.index.names)
    files = "1 file" if count == 1 else f"{count} files"
    typer.echo(f"{found.path}: {files}, {format_bytes(found.bytes)}")
    for kind, number in sorted(found.index.skipped.items()):
        typer.echo(f"  left out: {number} {kind}")
    if found.index.replaced:
        typer.echo(f"  replaced by a later file of the same name: {found.index.replaced}")


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except PackedFilesError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")) from error
