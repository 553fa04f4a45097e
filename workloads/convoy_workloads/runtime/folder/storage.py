"""Crash-safe files of a generation: written, synced and renamed, with digests to verify them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.folder.records import CommitRecord, parse_name, record_from_json
from convoy_workloads.runtime.generation import Generation

COMMIT = "COMMIT.json"
"""The record whose presence makes a generation valid."""
METADATA = ".metadata"
"""DCP's own index of the generation."""
PART = "part-{rank}.json"
"""The part of one rank: sizes and digests of its files, and DCP's results."""
FAILED = "failed-{rank}"
"""A file that a rank creates if it could not write its part."""
POLL_SECONDS = 0.02
"""Seconds between two checks for files of other ranks."""
_BROKEN = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""Errors of a file itself. Any other OSError may be a temporary error of the disk or network. A generation
that is skipped because of such an error would be lost for good.
"""


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def ensure_writable(root: Path) -> None:
    """Create the folder if necessary. DataError if this process may not write there; a retry would not
    help.
    """
    probe = root / f".probe-{os.uname().nodename}-{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise DataError(
            f"the checkpoint folder cannot be written by uid {os.getuid()}, gid {os.getgid()}: {error}. "
            "Make that user the owner, or choose another folder"
        ) from error


class InUse(Exception):
    """Another run uses the folder."""


@contextmanager
def locked(root: Path) -> Iterator[int]:
    """Lock an existing folder against other runs. InUse if another run holds the lock.

    The lock belongs to an open file. It lasts until this process, and every process that inherited the
    file, closes it.
    """
    file = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUse(
                f"another run, or a process that it left behind, keeps its checkpoints in {root}: end "
                "it, or choose another folder"
            ) from error
        yield file
    finally:
        os.close(file)


def write_atomic(path: Path, data: bytes) -> None:
    """Write the file atomically and durably. After a crash it holds either all of `data` or its previous
    content.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def write_json(path: Path, data: object) -> None:
    """Write a JSON file atomically."""
    write_atomic(path, json.dumps(data, separators=(",", ":"), sort_keys=True).encode())


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            block = file.read(1 << 20)
            if not block:
                return total.hexdigest()
            total.update(block)


def digests(paths: Iterable[Path]) -> dict[str, tuple[int, str]]:
    """Return the size in bytes and the digest of each file, by name."""
    return {path.name: (path.stat().st_size, digest(path)) for path in paths}


def generations(root: Path) -> list[Generation]:
    """Return the generations that have a folder, committed or not, oldest first."""
    if not root.is_dir():
        return []
    found = (parse_name(entry.name) for entry in root.iterdir() if entry.is_dir())
    return sorted(one for one in found if one is not None)


def records(root: Path) -> tuple[list[CommitRecord], dict[Generation, str]]:
    """Return the COMMIT records below `root`, oldest first, and the faults of those that cannot be read.

    OSError if the disk fails.
    """
    found: list[CommitRecord] = []
    complaints: dict[Generation, str] = {}
    for generation in generations(root):
        path = root / generation.name / COMMIT
        try:
            record = record_from_json(json.loads(path.read_bytes()))
        except FileNotFoundError:
            continue
        except (*_BROKEN, ValueError, KeyError, TypeError) as error:
            complaints[generation] = f"{path}: {type(error).__name__}: {error}"
            continue
        if record.generation != generation:
            complaints[generation] = f"{path} names generation {record.generation.name}"
            continue
        found.append(record)
    return found, complaints


def newest_incarnation(root: Path) -> int:
    """Return the highest incarnation that has a generation below `root`; 0 if there is none."""
    return max((one.incarnation for one in generations(root)), default=0)


def mark_failed(folder: Path, rank: int) -> None:
    """Report that a rank could not write its part. If this fails too, the other ranks wait until their
    limit.
    """
    with suppress(OSError):
        (folder / FAILED.format(rank=rank)).touch()


def has_failed(folder: Path) -> bool:
    """Return True if a rank could not write its part."""
    return any(folder.glob(FAILED.format(rank="*")))


def sealed(folder: Path, seconds: float) -> bool:
    """Wait up to `seconds` for the COMMIT record. Return True if it is there."""
    deadline = time.monotonic() + seconds
    while not (folder / COMMIT).exists():
        if has_failed(folder) or time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def find_fault(folder: Path, record: CommitRecord, share: int = 0, shares: int = 1) -> str:
    """Verify one share of the generation's files. Return the first fault; empty if each file matches its
    record.

    OSError if the disk fails. The files are divided by name, so `shares` ranks verify a generation in the
    time of one share.
    """
    expected = {METADATA: (-1, record.metadata), **record.files}
    for index, name in enumerate(sorted(expected)):
        if index % shares != share:
            continue
        size, wanted = expected[name]
        path = folder / name
        try:
            found = path.stat().st_size
            if size >= 0 and found != size:
                return f"{path} has {found} bytes instead of {size}"
            if digest(path) != wanted:
                return f"{path} does not match its digest"
        except _BROKEN as error:
            return f"{path}: {error.strerror}"
    return ""


def remove(root: Path, generation: Generation) -> None:
    """Delete a generation. Its COMMIT record is deleted first, so that a crash leaves no partly deleted
    valid generation.
    """
    folder = root / generation.name
    (folder / COMMIT).unlink(missing_ok=True)
    if folder.is_dir():
        sync_folder(folder)
    shutil.rmtree(folder, ignore_errors=True)
