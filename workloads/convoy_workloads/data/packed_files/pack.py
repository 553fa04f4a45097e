"""Packs a folder of many small files into tar archives. Equal folders give equal bytes."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from convoy_workloads.data.packed_files.errors import PackedFilesError
from convoy_workloads.data.packed_files.index_file import index_path, save_index
from convoy_workloads.data.packed_files.tar_index import Stamp, TarIndex
from convoy_workloads.data.packed_files.tar_scan import scan

MAX_ARCHIVES = 1000
_TIME = 315_532_800
"""Modification time of all entries: 1 January 1980, so that equal contents give equal bytes."""
_MODE = 0o644


class Source(NamedTuple):
    """A file to pack."""

    name: str
    """Path below the folder, with `/`."""
    size: int


@dataclass(frozen=True)
class Packed:
    """An archive that was written."""

    path: Path
    index: TarIndex

    @property
    def bytes(self) -> int:
        """Bytes of all its files."""
        return sum(self.index.sizes)


def find_sources(folder: Path) -> list[Source]:
    """Return the files of a folder and of all folders below, sorted by name. Symbolic links to files count
    as files.

    Raises PackedFilesError if there is no file, or something that is neither a file nor a folder.
    """
    if not folder.is_dir():
        raise PackedFilesError(f"{folder} is no folder")
    found = sorted(_walk(folder, ""), key=lambda one: os.fsencode(one.name))
    if not found:
        raise PackedFilesError(f"folder {folder} has no files")
    return found


def _walk(folder: Path, prefix: str) -> Iterator[Source]:
    waiting = [(os.fspath(folder), prefix)]
    while waiting:
        path, below = waiting.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                name = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{name}/"))
                else:
                    yield Source(name, _size(entry))


def _size(entry: os.DirEntry[str]) -> int:
    """Return the bytes of a file. Raises PackedFilesError for anything else."""
    try:
        found = entry.stat()
    except FileNotFoundError:
        raise PackedFilesError(f"{entry.path} is a symbolic link to a missing file") from None
    if stat.S_ISDIR(found.st_mode):
        raise PackedFilesError(
            f"{entry.path} is a symbolic link to a folder: copy the folder here, or remove it"
        )
    if not stat.S_ISREG(found.st_mode):
        raise PackedFilesError(f"{entry.path} is neither a file nor a folder")
    return found.st_size


def archive_paths(out: Path, archives: int) -> list[Path]:
    """Return the paths of a number of archives: `out`, or for several `out-0.tar` to `out-9.tar`."""
    if not 1 <= archives <= MAX_ARCHIVES:
        raise PackedFilesError(f"the number of archives must be from 1 to {MAX_ARCHIVES}, not {archives}")
    if archives == 1:
        return [out]
    width = len(str(archives - 1))
    return [out.with_name(f"{out.stem}-{number:0{width}}{out.suffix}") for number in range(archives)]


def pack(
    folder: Path,
    out: Path,
    archives: int = 1,
    *,
    force: bool = False,
    progress: Callable[[int], None] = lambda more: None,
    sources: Sequence[Source] | None = None,
) -> list[Packed]:
    """Write the files of `folder` to `archives` tar archives of about equal size, each with its index.

    The archives appear under their names when all of them are complete. `force`: replace existing archives.
    `progress` is called with the bytes of each packed file. `sources`: result of `find_sources`.

    Raises PackedFilesError, or OSError.
    """
    targets = archive_paths(out, archives)
    _check_targets(folder, targets, force)
    chosen = find_sources(folder) if sources is None else sources
    if len(chosen) < archives:
        raise PackedFilesError(f"{len(chosen)} files do not fill {archives} archives")
    suffix = f".{secrets.token_hex(4)}"
    partials = [one.with_name(f".{one.name}{suffix}") for one in targets]
    try:
        for partial, part in zip(partials, split(chosen, archives), strict=True):
            _write(folder, partial, part, progress)
        for partial, target in zip(partials, targets, strict=True):
            index_path(target).unlink(missing_ok=True)
            partial.replace(target)
    finally:
        for partial in partials:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
    return [index_archive(one) for one in targets]


def index_archive(archive: Path) -> Packed:
    """Scan an archive and write its index beside it. Raises PackedFilesError, or OSError."""
    with archive.open("rb") as file:
        stamp = Stamp.of(file.fileno())
        index = scan(archive, file.fileno(), stamp.size)
    save_index(archive, index, stamp)
    return Packed(archive, index)


def split(sources: Sequence[Source], parts: int) -> list[Sequence[Source]]:
    """Split the files into runs of about equal bytes. Each run has at least one file."""
    total = sum(one.size for one in sources)
    ends: list[int] = []
    sum_so_far = 0
    for number, one in enumerate(sources):
        sum_so_far += one.size
        left = parts - len(ends)
        must = len(sources) - number - 1 == left - 1
        if left > 1 and (must or sum_so_far * parts >= total * (len(ends) + 1)):
            ends.append(number + 1)
    starts = [0, *ends]
    return [sources[start:end] for start, end in zip(starts, [*ends, len(sources)], strict=True)]


def _check_targets(folder: Path, targets: Sequence[Path], force: bool) -> None:
    for target in targets:
        if folder.resolve() in target.resolve().parents:
            raise PackedFilesError(f"{target} lies in the folder to pack: choose a path outside of {folder}")
        if not target.absolute().parent.is_dir():
            raise PackedFilesError(f"folder {target.absolute().parent} does not exist")
        if target.is_dir():
            raise PackedFilesError(f"{target} is a folder: give the path of a file")
        if target.exists() and not force:
            raise PackedFilesError(f"{target} already exists")


def _write(folder: Path, path: Path, sources: Sequence[Source], progress: Callable[[int], None]) -> None:
    """Write one archive and flush it to disk."""
    with path.open("xb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as archive:
            for source in sources:
                _add(archive, folder / source.name, source)
                progress(source.size)
        file.flush()
        os.fsync(file.fileno())


def _add(archive: tarfile.TarFile, path: Path, source: Source) -> None:
    entry = tarfile.TarInfo(source.name)
    entry.size, entry.mtime, entry.mode = source.size, _TIME, _MODE
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != source.size:
            raise PackedFilesError(f"{path} changed while it was packed")
        try:
            archive.addfile(entry, file)
        except OSError as error:
            if error.errno is None:  # tarfile reports a file that has become shorter.
                raise PackedFilesError(f"{path} changed while it was packed") from error
            raise
