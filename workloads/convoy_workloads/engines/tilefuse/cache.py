"""The cache of packed models in the user's cache folder. A model is packed once, and then only mapped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
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
    cache = cache or folder()
    target = cache / key
    try:
        library.private_folder(cache)
        found = _used(target)
        if found is None:
            _make(target, make)
            _evict(cache, target)
            found = _used(target)
    except (OSError, KernelError) as error:
        raise ModelError(
            f"the packed model cannot be written to {cache}: {error}. Set XDG_CACHE_HOME to a folder with "
            "space for it, or pack the model with `convoy quantize`"
        ) from error
    if found is None:
        raise ModelError(f"the packed model in {target} cannot be read: delete it")
    return target, found


def _make(target: Path, make: Callable[[Path], None]) -> None:
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    partial.mkdir(mode=0o700)
    try:
        make(partial)
        if target.exists() and read_index(target) is None:
            shutil.rmtree(target)
        # The other process's model is as good.
        with contextlib.suppress(OSError):
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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
