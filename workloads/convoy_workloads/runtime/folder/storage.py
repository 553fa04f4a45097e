"""Crash-safe files of a generation. Files are synced and renamed when written, and have digests to verify
them.
"""

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
"""Name of the file with the COMMIT record. A generation is valid if this file exists."""
METADATA = ".metadata"
"""Name of the file with DCP's own index of the generation."""
PART = "part-{rank}.json"
"""Name of a rank's part file, which holds the sizes and digests of the rank's data files, and DCP's
results.
"""
FAILED = "failed-{rank}"
"""Name of the file that a rank creates if it could not write its part."""
POLL_SECONDS = 0.02
"""Seconds between two checks for files of other ranks."""
_BROKEN = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""Errors that show a fault of the file itself, so that its generation may be skipped.

Any other OSError may be a temporary error of the disk or network. If a generation were skipped because of
such an error, the run would resume from an older generation and lose the newer state.
"""


def sync_folder(path: Path) -> None:
    """Sync a folder, so that new and deleted file names survive a crash."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def ensure_writable(root: Path) -> None:
    """Create the folder if necessary, and check that this process may write to it.

    Raises DataError if it may not, because a retry would not help.
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
    """Raised if another run uses the folder."""


@contextmanager
def locked(root: Path) -> Iterator[int]:
    """Lock an existing folder against other runs. Raises InUse if another run holds the lock.

    The lock belongs to an open file. It lasts until this process, and every process that inherited the open
    file, has closed it.
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
    """Write the file atomically and durably. After a crash the file holds either all of `data` or its
    previous content.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, data: object) -> None:
    """Write `data` to a JSON file atomically and durably (see `write_atomic`)."""
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

    Raises OSError if the disk fails.
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
    """Report to the other ranks that this rank could not write its part.

    If the report fails too, the other ranks wait until their time limit.
    """
    with suppress(OSError):
        (folder / FAILED.format(rank=rank)).touch()


def has_failed(folder: Path) -> bool:
    """Return True if any rank has reported that it could not write its part."""
    return any(folder.glob(FAILED.format(rank="*")))


def sealed(folder: Path, seconds: float) -> bool:
    """Wait up to `seconds` for the COMMIT record. Return True if it exists.

    Return False after `seconds`, or as soon as a rank reports that it could not write its part.
    """
    deadline = time.monotonic() + seconds
    while not (folder / COMMIT).exists():
        if has_failed(folder) or time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def find_fault(folder: Path, record: CommitRecord, share: int = 0, shares: int = 1) -> str:
    """Verify one share of the generation's files. Return the first fault; empty if each file matches its
    record.

    The files are divided into `shares` shares by name, so that several ranks can verify a generation
    together. Raises OSError if the disk fails.
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
    """Delete a generation.

    Its COMMIT record is deleted first. So after a crash, a partly deleted generation never counts as valid.
    """
    folder = root / generation.name
    (folder / COMMIT).unlink(missing_ok=True)
    if folder.is_dir():
        sync_folder(folder)
    shutil.rmtree(folder, ignore_errors=True)
