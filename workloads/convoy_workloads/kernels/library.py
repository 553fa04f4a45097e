"""Finds the shared library of a translation unit, or builds it.

Order: the folder `lib/` of this package, which an image's builder stage fills, if the digest fits the
sources; the user's cache, where a missing library is built if there is a compiler; otherwise none, with one
warning per process.
"""

from __future__ import annotations

import ctypes
import os
import stat
from functools import cache
from pathlib import Path

from convoy_workloads.kernels import build
from convoy_workloads.kernels.errors import KernelError
from convoy_workloads.runtime.log import log_line

PACKAGED = Path(__file__).with_name("lib")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def find(name: str, *, packaged: Path = PACKAGED, cache_folder: Path | None = None) -> Path:
    """Return the path of the library of unit `name`. Build it in the user's cache if needed.

    Raises KernelError if there is no such unit, or no library and no way to build one.
    """
    unit = build.units().get(name)
    if unit is None:
        raise KernelError(f"there is no kernel source {name}.cpp")
    digest = build.digest(unit)
    built = packaged / f"{name}.so"
    if build.read_digests(packaged).get(name) == digest and built.is_file():
        return built
    folder = private_folder(cache_folder or user_cache()) / digest
    found = folder / f"{name}.so"
    if not found.exists():
        # A process that builds the same library at the same time replaces it with an equal one.
        build.compile_unit(unit, private_folder(folder))
    check_owner(found)
    return found


def user_cache() -> Path:
    """Return the user's folder of built kernels. Raises KernelError if the user has no home folder."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(root) if root.startswith("/") else Path.home() / ".cache"
    except RuntimeError as error:
        # A container may run as a user without an entry in /etc/passwd, and without HOME.
        raise KernelError("this user has no home folder: set XDG_CACHE_HOME to a folder") from error
    return base / "convoy" / "kernels"


def private_folder(folder: Path) -> Path:
    """Make a folder that only its owner may write to, if it is missing. Check its owner and its mode.

    Raises KernelError if another user could place a library there.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KernelError(
            f"cannot make {folder}: {error.strerror}. Set XDG_CACHE_HOME to a folder that you can write to"
        ) from error
    check_owner(folder)
    return folder


def check_owner(path: Path) -> None:
    """Raise KernelError if the path is not this user's, or if others may write to it."""
    try:
        state = path.lstat()
    except OSError as error:
        raise KernelError(f"cannot use {path}: {error.strerror}") from error
    if state.st_uid != os.geteuid() or stat.S_ISLNK(state.st_mode) or state.st_mode & _WRITABLE_BY_OTHERS:
        raise KernelError(
            f"{path} is a link, is another user's, or others may write to it."
            " Delete it, or set XDG_CACHE_HOME"
        )


def load(name: str) -> ctypes.CDLL:
    """Load the library of unit `name`. Raises KernelError if the library cannot be built or loaded."""
    path = find(name)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelError(f"cannot load {path}: {error}") from error


@cache
def warn_once(text: str) -> None:
    """Write a warning to stderr, once per process."""
    log_line(f"warning: {text}")
