"""Tools for files: atomic writes, locks and the cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.errors import ClusterError

CHECKOUT = Path(__file__).resolve().parents[2]


def cache_root() -> Path:
    """Return the folder in the user's cache for binaries, images and the state of running clusters."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).resolve() / "convoy"


def write(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    """Replace `path` atomically: a reader sees the whole old file or the whole new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def building(final: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `final` at the end, or deleted if the block raises an
    error.

    The caller holds a lock, so temporary folders of killed processes can be deleted first.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    for stale in final.parent.glob(f".{final.name}.*"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        temporary.chmod(0o755)
        yield temporary
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def locked(path: Path, *, deadline: float, what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`. Raises ClusterError after `deadline` seconds without the
    lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + deadline
    while True:
        with path.open("a+") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= end:
                        file.seek(0)
                        holder = file.read().strip() or "unknown"
                        raise ClusterError(
                            f"{what}: busy for {deadline:g} s; process {holder} holds {path}."
                            " Wait for it or end it."
                        ) from None
                    time.sleep(0.1)
            # The previous holder may have deleted the file during the wait. This lock then protects nothing,
            # so try again.
            if not path.exists() or os.fstat(file.fileno()).st_ino != path.stat().st_ino:
                continue
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield
            return
