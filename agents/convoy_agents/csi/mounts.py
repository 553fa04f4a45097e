"""Mounts through the system call mount(2), so the image needs no mount(8) and each OSError has its errno."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

_OPEN_TREE, _MOUNT_SETATTR = 428, 442
"""Numbers of the system calls open_tree (Linux 5.2) and mount_setattr (Linux 5.12) on all architectures."""
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE = 1
_MOUNT_ATTR_RDONLY = 1
_libc.syscall.restype = ctypes.c_long

MOUNT_TABLE = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table."""

    root: str
    """The mounted folder, as a path within its own file system."""
    target: str
    kind: str = ""
    """Type of the file system, such as tmpfs."""


def bind_read_only(source: Path, target: Path) -> None:
    """Bind-mount `source` read-only at `target`, which must exist. Raises the OSError of mount(2)."""
    _mount(source, target, MS_BIND)
    try:
        # The first mount(2) call ignores all flags except MS_BIND and MS_REC, so a second call sets them.
        _mount(source, target, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    except OSError:
        unmount(target)
        raise


def tmpfs(target: Path, size: int) -> None:
    """Mount a tmpfs of at most `size` bytes at `target`. Raises the OSError of mount(2)."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    options = f"size={size},mode=0700"
    try:
        # Huge pages reduce page faults. Some kernels do not support them in a tmpfs
        # (CONFIG_TRANSPARENT_HUGEPAGE), so the mount is repeated without them.
        _mount(Path("tmpfs"), target, flags, "tmpfs", f"{options},huge=within_size")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _mount(Path("tmpfs"), target, flags, "tmpfs", options)


def resize_tmpfs(target: Path, size: int) -> None:
    """Set the size limit of a tmpfs to `size` bytes. Raises OSError (EBUSY or EINVAL) if its files already
    use more.
    """
    _mount(Path("tmpfs"), target, MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC, "tmpfs", f"size={size}")


def open_read_only(path: Path) -> int:
    """Open a file for reading. A process that receives the descriptor cannot reopen the file for writing.

    Root can reopen an ordinary descriptor for writing through /proc/self/fd. The returned descriptor
    prevents this: it belongs to a detached read-only mount. Before Linux 5.12 it is an ordinary descriptor.
    Raises OSError if the file cannot be opened.
    """
    try:
        tree = _call(path, _OPEN_TREE, _AT_FDCWD, os.fsencode(path.parent), _OPEN_TREE_CLONE | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return os.open(path, os.O_RDONLY)
    try:
        _set_read_only(path, tree)
        return os.open(path.name, os.O_RDONLY, dir_fd=tree)
    finally:
        os.close(tree)


class _MountAttr(ctypes.Structure):
    """The structure `mount_attr` of mount_setattr(2)."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd"))


def _set_read_only(path: Path, tree: int) -> None:
    attr = _MountAttr(attr_set=_MOUNT_ATTR_RDONLY)
    try:
        _call(path, _MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(attr), ctypes.sizeof(attr))
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise


def unmount(target: Path) -> bool:
    """Unmount every mount at `target`. Return False if there was none. Raises the OSError of umount2(2)."""
    found = False
    for _ in range(16):  # Several mounts may be stacked at one path.
        try:
            _umount(target, UMOUNT_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return found
            if error.errno != errno.EBUSY:
                raise
            # EBUSY: a process still has a file open there. Detach the mount: its path shows no files from now
            # on, and the kernel removes the mount when the last file is closed.
            _umount(target, UMOUNT_NOFOLLOW | MNT_DETACH)
        found = True
    return found


def shows(source: Path, target: Path) -> bool:
    """Return True if `source` is mounted read-only at `target` already."""
    try:
        read_only = bool(os.statvfs(target).f_flag & ST_RDONLY)
        return read_only and source.samefile(target)
    except OSError:
        return False


def is_target(folder: Path) -> bool:
    """Return True if `folder` is a mount point. Its path must not contain symbolic links.

    Unlike Path.is_mount, this also detects a bind mount from the same file system.
    """
    return any(mount.target == str(folder) for mount in table())


def table(text: str | None = None) -> list[Mount]:
    """Return the mounts that this process sees. `text`: the content of a mount table; None to read this
    process's own.
    """
    lines = (MOUNT_TABLE.read_text() if text is None else text).splitlines()
    return [
        Mount(_unescape(fields[3]), _unescape(fields[4]), fields[fields.index("-") + 1])
        for fields in map(str.split, lines)
    ]


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


def _call(path: Path, number: int, *arguments: Any) -> int:
    # The kernel reads full registers, so pass long values: an int would set only half of a register.
    words = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    found = int(_libc.syscall(ctypes.c_long(number), *words))
    if found < 0:
        _raise(path)
    return found


def _raise(target: Path) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), str(target))
