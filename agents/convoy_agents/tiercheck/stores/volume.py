"""Blobs in a POSIX folder on a volume. The volume must be mounted on each node that reads or writes the
store.

A blob is written under a temporary name, synced and renamed. Then its folder is synced. Nodes that share a
volume must see each other's files and write times at once, so NFS must be mounted with noac. The clocks of
the nodes and of the file server must agree within minutes, because they decide what is within the grace
period.

Other users may be able to write to the volume, and the agent runs as root. So below the volume's root each
folder is opened relative to its parent, symbolic links are not followed, and only regular files are read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.stores.blobs import MAX_TEXT, Listing
from convoy_agents.tiercheck.stores.errors import NotMounted, StoreError

_RETRIABLE = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT})
_FOREIGN = (
    "something that Convoy did not write is in the way; find out who else writes to the volume, and remove it"
)
_ADVICE = {
    errno.EACCES: "permission denied; check the owner and mode of the volume's folders",
    errno.EDQUOT: "the quota is used up; raise it or keep fewer generations",
    errno.EIO: "the disk or file server has failed; check the volume",
    errno.EISDIR: _FOREIGN,
    errno.ELOOP: _FOREIGN,
    errno.ENOENT: "the volume is not mounted there",
    errno.ENOSPC: "the volume is full; enlarge it or keep fewer generations",
    errno.ENOTDIR: _FOREIGN,
    errno.EPERM: "the file system has no hard links; use one that has",
    errno.ENOSYS: "the file system has no hard links; use one that has",
    errno.EOPNOTSUPP: "the file system has no hard links; use one that has",
    errno.EROFS: "the volume is read-only; mount it for writing",
}
_TRIES = 3
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH returns a descriptor without opening the file itself. Opening a pipe could block, and opening a
# device could have side effects.
_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}", re.DOTALL)


class Volume:
    """Blobs below an existing folder. If the volume is not mounted at this folder, nothing is written
    there.
    """

    def __init__(
        self, root: Path, path: str = "", *, claim: str = "", mounted: Callable[[Path], bool] = Path.is_dir
    ) -> None:
        """`path`: the folder on the volume that contains all blobs; it is created if it is missing.
        `claim`: the PersistentVolumeClaim, for messages.

        `mounted`: returns True if the volume is mounted at `root`; otherwise NotMounted is raised. Symbolic
        links in the path of `root` are followed.
        """
        self._root = root
        self._path = path
        self._mounted = mounted
        place = f"claim {claim}{f', folder {path}' if path else ''}"
        self._where = place if claim else f"folder {root / path}"

    @property
    def where(self) -> str:
        """The location of the store, for messages."""
        return self._where

    def put(self, key: str, data: digest.Buffer) -> None:
        """See `Blobs.put`."""
        name = self._parts(key)[-1]
        with self._store_errors("write", key), self._temporary_file(key, data) as (folder, temporary):
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def create(self, key: str, data: digest.Buffer) -> bool:
        """See `Blobs.create`. Of several concurrent calls of link(2) for one name, exactly one succeeds."""
        name = self._parts(key)[-1]
        with (
            self._store_errors("create", key),
            self._temporary_file(key, data, durable=True) as (folder, temporary),
        ):
            try:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                made = True
            except FileExistsError:
                made = False
                # The writer of the existing file may have died before the file was durable, so sync it.
                with contextlib.suppress(FileNotFoundError), _regular(folder, name) as fd:
                    os.fsync(fd)
            os.fsync(folder)
        return made

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        """See `Blobs.get`."""
        offset, length = span or (0, limit)
        with self._store_errors("read", key):
            try:
                with self._file(key) as fd:
                    return _read(fd, offset, min(length, limit))
            except FileNotFoundError:
                self._check_mounted()
                return None

    def names(
        self, folder: str, alive: Callable[[], None] = lambda: None, wanted: Container[str] | None = None
    ) -> Listing:
        """See `Blobs.names`."""
        written: dict[str, float] = {}
        sizes: dict[str, int] = {}
        unfinished: dict[str, int] = {}
        now = time.time()
        with self._store_errors("list", folder):
            for name, found in self._entries(folder, alive, wanted):
                if not stat.S_ISREG(found.st_mode):
                    continue
                if _TEMPORARY.fullmatch(name):
                    unfinished[name] = found.st_size
                elif not name.startswith("."):
                    written[name], sizes[name] = found.st_mtime, found.st_size
        return Listing(now, written, sizes, unfinished)

    def folders(self, folder: str, alive: Callable[[], None] = lambda: None) -> set[str]:
        """See `Blobs.folders`."""
        with self._store_errors("list", folder):
            return {name for name, found in self._entries(folder, alive) if stat.S_ISDIR(found.st_mode)}

    def touch(self, key: str) -> bool:
        """See `Blobs.touch`."""
        with self._store_errors("touch", key):
            try:
                with self._file(key) as fd:
                    os.utime(fd)
            except FileNotFoundError:
                self._check_mounted()
                return False
        return True

    def remove(self, key: str) -> None:
        """See `Blobs.remove`. The folder is synced, so that removals become durable in the order of the
        calls.
        """
        *above, name = self._parts(key)
        with (
            self._store_errors("delete", key),
            contextlib.suppress(FileNotFoundError),
            self._folder(above) as folder,
        ):
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        """See `Blobs.tidy`."""
        *above, name = self._parts(folder)
        with self._store_errors("tidy", folder):
            old = [
                one
                for one, found in self._entries(folder, alive)
                if _TEMPORARY.fullmatch(one) and stat.S_ISREG(found.st_mode) and found.st_mtime < before
            ]
            with contextlib.suppress(FileNotFoundError), self._folder(above) as upper:
                if old:
                    with self._folder([*above, name]) as lower:
                        for one in old:
                            with contextlib.suppress(FileNotFoundError):
                                os.unlink(one, dir_fd=lower)
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=upper)

    def refuses_damage(self, key: str) -> bool:
        """Return False: a file has no checksum."""
        return False

    def _parts(self, key: str) -> list[str]:
        """Split the path of a key below the volume's root into names. Raises ValueError if the path leaves
        the root.
        """
        parts = [part for part in f"{self._path}/{key}".split("/") if part]
        if not parts or ".." in parts:
            raise ValueError(f"{key!r} names nothing below a volume's root")
        return parts

    @contextlib.contextmanager
    def _folder(self, parts: Sequence[str], *, make: bool = False, durable: bool = False) -> Iterator[int]:
        """Open a folder within the block. Yield its descriptor. `make`: create missing folders. `durable`:
        sync every parent folder, even if another process created it.
        """
        fd = self._open_root()
        try:
            for part in parts:
                above, fd = fd, self._step(fd, part, make)
                try:
                    if durable:
                        os.fsync(above)
                finally:
                    os.close(above)
            yield fd
        finally:
            os.close(fd)

    def _open_root(self) -> int:
        try:
            return os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._check_mounted()
            raise

    def _step(self, above: int, name: str, make: bool) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
        self._check_mounted()
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode=0o700, dir_fd=above)
            os.fsync(above)
        return os.open(name, _FOLDER, dir_fd=above)

    @contextlib.contextmanager
    def _file(self, key: str) -> Iterator[int]:
        """Open a regular file for reading within the block. Yield its descriptor."""
        *above, name = self._parts(key)
        with self._folder(above) as folder, _regular(folder, name) as fd:
            yield fd

    def _entries(
        self, folder: str, alive: Callable[[], None], wanted: Container[str] | None = None
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the entries directly in a folder, or only the wanted ones. Symbolic links are not followed.
        `alive` is called for each entry.
        """
        parts = self._parts(folder) if folder or self._path else []
        try:
            with self._folder(parts) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    alive()
                    if wanted is not None and entry.name not in wanted:
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.name, entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            self._check_mounted()

    def _check_mounted(self) -> None:
        """Raise NotMounted if the volume is not mounted. Call this before a folder is created. Call it also
        if a file or folder is missing, because an unmounted volume may be the reason.
        """
        if not self._mounted(self._root):
            raise NotMounted(
                f"{self.where}: it is not mounted at {self._root}", retriable=False, errno=errno.ENOENT
            )

    @contextlib.contextmanager
    def _temporary_file(
        self, key: str, data: digest.Buffer, *, durable: bool = False
    ) -> Iterator[tuple[int, str]]:
        """Write `data` to a temporary file and sync the file. Yield the folder's descriptor and the file's
        name. `durable`: also sync all parent folders.

        The file is removed after the block, unless the block has renamed it.
        """
        *above, name = self._parts(key)
        temporary = f".{name}.{secrets.token_hex(8)}"
        with self._new_file(above, temporary, durable) as (folder, fd):
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(fd, left) :]
                os.fsync(fd)
                yield folder, temporary
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)

    @contextlib.contextmanager
    def _new_file(self, above: Sequence[str], name: str, durable: bool) -> Iterator[tuple[int, int]]:
        """Create a file within the block. Yield the descriptors of its folder and of the file."""
        with contextlib.ExitStack() as stack:
            for left in reversed(range(_TRIES)):
                try:
                    folder = stack.enter_context(self._folder(above, make=True, durable=durable))
                    fd = os.open(name, _FRESH, 0o600, dir_fd=folder)
                    break
                except FileNotFoundError:
                    # `tidy` has removed the folder, because it was empty, so create it again.
                    if not left:
                        raise
            stack.callback(os.close, fd)
            yield folder, fd

    @contextlib.contextmanager
    def _store_errors(self, operation: str, key: str) -> Iterator[None]:
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


@contextlib.contextmanager
def _regular(folder: int, name: str) -> Iterator[int]:
    """Open a regular file for reading. Yield its descriptor. Raises OSError; its errno is ELOOP if `name`
    is not a regular file.
    """
    seen = os.open(name, _PATH_ONLY, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(seen).st_mode):
            raise OSError(errno.ELOOP, "not a regular file")
        fd = os.open(f"/proc/self/fd/{seen}", _READ)
    finally:
        os.close(seen)
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, offset: int, length: int) -> bytes:
    """Return `length` bytes from `offset`, or fewer if the file is shorter. `fd`: an open file."""
    left = min(length, max(0, os.fstat(fd).st_size - offset))
    pieces: list[bytes] = []
    while left > 0 and (piece := os.pread(fd, left, offset)):
        pieces.append(piece)
        offset, left = offset + len(piece), left - len(piece)
    return b"".join(pieces)
