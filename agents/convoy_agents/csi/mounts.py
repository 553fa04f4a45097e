"""Mounts, by mount(2) itself: the image needs no mount(8), and an error keeps its errno."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
ST_RDONLY = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)

MOUNT_TABLE = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table."""

    root: str
    """The folder of its file system that is mounted."""
    target: str


def bind_read_only(source: Path, target: Path) -> None:
    """Makes `source` appear at `target`, which exists, without write access. OSError as mount(2)."""
    _mount(source, target, MS_BIND)
    try:
        # A first bind ignores every flag but MS_BIND and MS_REC (mount(2)).
        _mount(source, target, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    except OSError:
        unmount(target)
        raise


def tmpfs(target: Path, size: int) -> None:
    """Makes memory of at most so many bytes appear at `target`. OSError as mount(2)."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    options = f"size={size},mode=0700"
    try:
        # Huge pages: fewer faults. Not every kernel has them for tmpfs (CONFIG_TRANSPARENT_HUGEPAGE).
        _mount(Path("tmpfs"), target, flags, "tmpfs", f"{options},huge=within_size")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _mount(Path("tmpfs"), target, flags, "tmpfs", options)


def resize_tmpfs(target: Path, size: int) -> None:
    """Gives it another limit. OSError (EBUSY, EINVAL) when it holds more than that already."""
    _mount(Path("tmpfs"), target, MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC, "tmpfs", f"size={size}")


def unmount(target: Path) -> bool:
    """Undoes every mount at `target`; False when there was none. OSError as umount2(2)."""
    found = False
    for _ in range(16):  # mounts may lie on top of one another
        try:
            _umount(target, UMOUNT_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return found
            if error.errno != errno.EBUSY:
                raise
            # Somebody still has a file open; for everybody else it is gone.
            _umount(target, UMOUNT_NOFOLLOW | MNT_DETACH)
        found = True
    return found


def shows(source: Path, target: Path) -> bool:
    """Whether `target` already shows `source`, read-only."""
    try:
        read_only = bool(os.statvfs(target).f_flag & ST_RDONLY)
        return read_only and source.samefile(target)
    except OSError:
        return False


def is_target(folder: Path) -> bool:
    """Whether something is mounted right there; `folder` is a path without links.

    Unlike Path.is_mount it sees a folder of the same file system too.
    """
    return any(mount.target == str(folder) for mount in table())


def table(text: str | None = None) -> list[Mount]:
    """The mounts this process sees."""
    lines = (MOUNT_TABLE.read_text() if text is None else text).splitlines()
    return [Mount(_unescape(fields[3]), _unescape(fields[4])) for fields in map(str.split, lines)]


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _mount(source: Path, target: Path, flags: int, kind: str = "", options: str = "") -> None:
    if _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, options.encode() or None
    ):
        _raise(target)


def _umount(target: Path, flags: int) -> None:
    if _libc.umount2(os.fsencode(target), flags):
        _raise(target)


def _raise(target: Path) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), str(target))
