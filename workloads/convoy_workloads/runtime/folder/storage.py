"""Files of a generation that survive a crash: written, synced, renamed; digested and verified."""

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
"""Its presence makes a generation exist."""
METADATA = ".metadata"
"""DCP's own index of the generation."""
PART = "part-{rank}.json"
"""What one rank wrote: sizes and digests of its files, and DCP's results."""
FAILED = "failed-{rank}"
"""There once a rank could not write its part."""
POLL_SECONDS = 0.02
"""Between two looks for what other ranks write."""
_BROKEN = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
"""What is wrong with a file itself. Any other OSError may be the disk's or the network's, and pass: a
generation that is passed over for it is lost for good."""


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def must_be_writable(root: Path) -> None:
    """Makes the folder if need be. DataError when this process may not write there, which no retry heals."""
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
            "Let them own it, or name another"
        ) from error


class InUse(Exception):
    """Another run uses the folder."""


@contextmanager
def locked(root: Path) -> Iterator[int]:
    """Keeps other runs out of a folder that exists, by an open file, as long as this process or one that was
    handed the file has it open. InUse when another run has it.
    """
    file = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUse(
                f"another run keeps its checkpoints in {root}, or processes that it has left behind do: end "
                "them, or name another folder"
            ) from error
        yield file
    finally:
        os.close(file)


def write_atomic(path: Path, data: bytes) -> None:
    """The file holds either all of `data`, durably, or what it held before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def write_json(path: Path, data: object) -> None:
    """A JSON file, atomically."""
    write_atomic(path, json.dumps(data, separators=(",", ":"), sort_keys=True).encode())


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            block = file.read(1 << 20)
            if not block:
                return total.hexdigest()
            total.update(block)


def digests(paths: Iterable[Path]) -> dict[str, tuple[int, str]]:
    """Size in bytes and digest of each file, by name."""
    return {path.name: (path.stat().st_size, digest(path)) for path in paths}


def generations(root: Path) -> list[Generation]:
    """The generations that have a folder, committed or not, oldest first."""
    if not root.is_dir():
        return []
    found = (parse_name(entry.name) for entry in root.iterdir() if entry.is_dir())
    return sorted(one for one in found if one is not None)


def records(root: Path) -> tuple[list[CommitRecord], dict[Generation, str]]:
    """The COMMIT records below `root`, oldest first, and what is wrong with those that cannot be read.

    OSError when the disk does not answer.
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
    """The highest incarnation that has left a generation below `root`; 0 for none."""
    return max((one.incarnation for one in generations(root)), default=0)


def mark_failed(folder: Path, rank: int) -> None:
    """Says that a rank could not write its part. Where that cannot be said either, others wait for it."""
    with suppress(OSError):
        (folder / FAILED.format(rank=rank)).touch()


def has_failed(folder: Path) -> bool:
    """Whether a rank could not write its part."""
    return any(folder.glob(FAILED.format(rank="*")))


def sealed(folder: Path, seconds: float) -> bool:
    """Whether its COMMIT record is there, within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (folder / COMMIT).exists():
        if has_failed(folder) or time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def fault(folder: Path, record: CommitRecord, share: int = 0, shares: int = 1) -> str:
    """What is wrong with this share of the generation's files; empty when each is as recorded. OSError when
    the disk does not answer.

    The files are dealt out by name, so `shares` ranks verify a generation in the time of one share.
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
                return f"{path} has {found} bytes, not {size}"
            if digest(path) != wanted:
                return f"{path} does not match its digest"
        except _BROKEN as error:
            return f"{path}: {error.strerror}"
    return ""


def remove(root: Path, generation: Generation) -> None:
    """Deletes a generation; its COMMIT goes first, so that a crash in between leaves no torn generation."""
    folder = root / generation.name
    (folder / COMMIT).unlink(missing_ok=True)
    if folder.is_dir():
        sync_folder(folder)
    shutil.rmtree(folder, ignore_errors=True)
