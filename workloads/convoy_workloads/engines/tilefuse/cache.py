"""The cache of packed models in the user's cache folder. A model is packed once, and then only mapped."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from convoy_workloads.engines.tilefuse.packed_folder import INDEX, VERSION, Index, read_index
from convoy_workloads.kernels import library
from convoy_workloads.kernels.errors import KernelError
from convoy_workloads.kernels.packing import LAYOUT
from convoy_workloads.serving.protocol import ModelError

MODELS = 4
"""Maximum number of packed models in the cache. The least recently used are deleted."""
YOUNG_SECONDS = 60.0
"""Age up to which the part of a model stays although it is not locked: its process may lock it soon."""


def identity(path: Path | None, settings: Mapping[str, Any]) -> str:
    """Return the key of a model that is packed with these settings. It changes with the size and the time of
    each file in the folder.
    """
    files = []
    if path is not None:
        found = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        files = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in found]
    body = json.dumps([VERSION, LAYOUT, files, settings], sort_keys=True)
    return hashlib.sha256(body.encode()).hexdigest()[:32]


def folder() -> Path:
    """Return the folder of packed models."""
    return library.user_cache().parent / "packed-models"


def packed(key: str, make: Callable[[Path], None], cache: Path | None = None) -> tuple[Path, Index]:
    """Return the folder of the packed model `key` with its index. If the cache does not have it, `make`
    writes it to a folder.

    If two processes make it at the same time, the first one's stays. Raises ModelError if the cache cannot be
    written.
    """
    try:
        cache = cache or folder()
        target = cache / key
        library.private_folder(cache)
        found = _used(target)
        if found is None:
            _make(target, make)
            _evict(cache, target)
            found = _used(target)
    except (OSError, KernelError) as error:
        raise ModelError(
            f"the packed model cannot be written to {cache or 'the cache'}: {error}. Set XDG_CACHE_HOME to a "
            "folder with space for it, or pack the model with `convoy quantize`"
        ) from error
    if found is None:
        raise ModelError(f"the packed model in {target} cannot be read: delete it")
    return target, found


def _make(target: Path, make: Callable[[Path], None]) -> None:
    for left in target.parent.glob(".*"):
        _remove_if_abandoned(left)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    partial.mkdir(mode=0o700)
    # Its lock ends with this process, whatever ends it.
    lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        make(partial)
        if target.exists() and read_index(target) is None:
            shutil.rmtree(target)
        # The other process's model is as good.
        with contextlib.suppress(OSError):
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def _remove_if_abandoned(partial: Path) -> None:
    """Delete the part of a model that a process has left when it was killed. Other parts stay."""
    with contextlib.suppress(OSError):
        if time.time() - partial.stat().st_mtime < YOUNG_SECONDS:
            return
        lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(partial, ignore_errors=True)
        finally:
            os.close(lock)


def _used(target: Path) -> Index | None:
    """Return the index of a packed model, and record the use; None if there is none."""
    found = read_index(target)
    if found is not None:
        os.utime(target / INDEX)
    return found


def _evict(cache: Path, kept: Path) -> None:
    """Delete the least recently used models. A process that has mapped one keeps its memory."""
    others = [one for one in cache.iterdir() if (one / INDEX).exists() and one != kept and one.name[0] != "."]
    others.sort(key=lambda one: (one / INDEX).stat().st_mtime_ns, reverse=True)
    for one in others[MODELS - 1 :]:
        shutil.rmtree(one, ignore_errors=True)
