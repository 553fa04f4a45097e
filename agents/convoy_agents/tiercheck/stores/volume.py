"""Blobs in a POSIX folder: a volume that is mounted on every node, or on the one that uploads.

Each is written under another name, synced, and then takes its name; the folder is synced after that. Nodes
that share a volume have to see each other's files and their times at once: NFS has to be mounted with noac.
Their clocks and the file server's have to agree within minutes: what was written within the grace is told by
them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.base import Listing
from convoy_agents.tiercheck.stores.errors import NotMounted, StoreError

_RETRIABLE = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT})
_ADVICE = {
    errno.EACCES: "this user may not; check the owner and mode of the volume's folders",
    errno.EDQUOT: "the quota is used up; raise it or keep fewer generations",
    errno.EIO: "the disk or its server fails; check the volume",
    errno.ENOENT: "the volume is not mounted there",
    errno.ENOSPC: "the volume is full; enlarge it or keep fewer generations",
    errno.EPERM: "the file system has no hard links; use another",
    errno.ENOSYS: "the file system has no hard links; use another",
    errno.EOPNOTSUPP: "the file system has no hard links; use another",
    errno.EROFS: "the volume is read-only; mount it for writing",
}
_TRIES = 3


class Volume:
    """All below one folder, which has to be there: a volume that is not mounted is not written beside."""

    def __init__(
        self, root: Path, path: str = "", *, claim: str = "", mounted: Callable[[Path], bool] = Path.is_dir
    ) -> None:
        """`path`: folder of the volume below which all of it is kept; it is made when it is not there.

        `claim`: the PersistentVolumeClaim, for messages. `mounted`: whether the volume is at `root`, else
        NotMounted.
        """
        self._root = root
        self._top = root / path
        self._mounted = mounted
        self._where = f"claim {claim}{f', folder {path}' if path else ''}" if claim else f"folder {self._top}"

    @property
    def where(self) -> str:
        """The place, for messages."""
        return self._where

    def put(self, key: str, data: digest.Buffer) -> None:
        """As `Blobs.put`."""
        path = self._path(key)
        with self._doing("write", key), self._written(path, data) as temporary:
            temporary.replace(path)
            _sync(path.parent)

    def create(self, key: str, data: digest.Buffer) -> bool:
        """As `Blobs.create`: of several links to one name one is made."""
        path = self._path(key)
        with self._doing("create", key), self._written(path, data) as temporary:
            try:
                path.hardlink_to(temporary)
            except FileExistsError:
                return False
            _sync(path.parent)
        return True

    def get(self, key: str, span: tuple[int, int] | None = None) -> bytes | None:
        """As `Blobs.get`."""
        with self._doing("read", key):
            try:
                file = self._path(key).open("rb")
            except FileNotFoundError:
                self._see_root()
                return None
            with file:
                return os.pread(file.fileno(), span[1], span[0]) if span else file.read()

    def names(self, folder: str) -> Listing:
        """As `Blobs.names`."""
        written: dict[str, float] = {}
        sizes: dict[str, int] = {}
        now = time.time()
        with self._doing("list", folder):
            for entry in self._entries(folder):
                if not entry.name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat()
                        written[entry.name], sizes[entry.name] = found.st_mtime, found.st_size
        return Listing(now, written, sizes)

    def folders(self, folder: str) -> set[str]:
        """As `Blobs.folders`."""
        with self._doing("list", folder):
            return {entry.name for entry in self._entries(folder) if entry.is_dir()}

    def touch(self, key: str) -> bool:
        """As `Blobs.touch`."""
        with self._doing("touch", key):
            try:
                os.utime(self._path(key))
            except FileNotFoundError:
                self._see_root()
                return False
        return True

    def remove(self, key: str) -> None:
        """As `Blobs.remove`; synced, so that what is removed later does not go earlier."""
        path = self._path(key)
        with self._doing("delete", key), contextlib.suppress(FileNotFoundError):
            path.unlink()
            _sync(path.parent)

    def tidy(self, folder: str, before: float) -> None:
        """As `Blobs.tidy`."""
        with self._doing("tidy", folder):
            for entry in self._entries(folder):
                if entry.name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        if entry.stat().st_mtime < before:
                            Path(entry.path).unlink()
            with contextlib.suppress(OSError):
                self._path(folder).rmdir()

    def refuses_damage(self, key: str) -> bool:
        """As `Blobs.refuses_damage`: a file has no checksum."""
        return False

    def _path(self, key: str) -> Path:
        return self._top / key

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._path(folder)) as entries:
                return list(entries)
        except FileNotFoundError:
            self._see_root()
            return []

    def _see_root(self) -> None:
        """Before a first folder is made, and when something is not there: nothing else can be beside it."""
        if not self._mounted(self._root):
            raise NotMounted(
                f"{self.where}: it is not mounted at {self._root}", retriable=False, errno=errno.ENOENT
            )

    @contextlib.contextmanager
    def _written(self, path: Path, data: digest.Buffer) -> Iterator[Path]:
        """A synced file of these bytes beside `path`, that goes unless it is renamed."""
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with self._fresh(temporary) as fd:
                left = memoryview(data)
                while left:
                    left = left[os.write(fd, left) :]
                os.fsync(fd)
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _fresh(self, path: Path) -> Iterator[int]:
        for left in reversed(range(_TRIES)):
            self._make(path.parent)
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                break
            except FileNotFoundError:
                # The folder was empty, and somebody has just tidied it up.
                if not left:
                    raise
        try:
            yield fd
        finally:
            os.close(fd)

    def _make(self, folder: Path) -> None:
        if folder == self._root:
            self._see_root()
        elif not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            _sync(folder.parent)

    @contextlib.contextmanager
    def _doing(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            code = error.errno or 0
            advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
            raise StoreError(
                f"{self.where}: {operation} {key}: {error.strerror}{advice}",
                retriable=code in _RETRIABLE,
                errno=error.errno,
            ) from error


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
