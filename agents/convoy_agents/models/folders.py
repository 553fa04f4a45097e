"""The models on this node's disk.

    generations/<key>/              a generation: record.json, shards/<shard>/gen-<i>-<s>
    generations/<key>.<n>.new/      a download that has not ended, or a generation that is being removed
    pods/<short>/                   the folder that a pod sees, read-only: hard links to a generation
    boot                            id of the node's boot in which the generations were written

The link count of a file shows whether a pod uses it. So the count survives a restart of the agent, and a pod
keeps its files whatever happens to the folder of the generation. Files are written without fsync, so a
generation from before a reboot of the node may be damaged. No pod uses it any more, and it is removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import structlog

from convoy_agents.models.source import Failure, ModelError

RECORD = "record.json"
SHARDS = "shards"
KEEP_SECONDS = 600.0
"""Seconds for which a generation stays after its last pod has left. A restarted replica then needs no
download.
"""
_UNFINISHED = ".new"
_GIB = 2**30

log = structlog.get_logger()


def boot_id() -> str:
    """Return an id that changes with each boot of the node."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class ModelFolders:
    """The folders of models and pods. All methods block, and are thread-safe."""

    def __init__(
        self,
        root: Path,
        limit: int = 0,
        reserve: int = 0,
        reserve_percent: int = 0,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        """`limit`: maximum bytes of all models; 0 for no limit. `reserve` and `reserve_percent`: bytes and
        percentage of the disk to keep free; the larger one counts.
        """
        self._generations = root / "generations"
        self._pods = root / "pods"
        self._root = root
        self._limit = limit
        self._reserve = reserve
        self._reserve_percent = reserve_percent
        self._boot = boot()
        self._lock = threading.Lock()
        self._loading: dict[Path, int] = {}
        """Bytes of each download that has not ended, by its folder."""
        self._numbers = itertools.count()

    def pod(self, short: str) -> Path:
        """Return the folder that a pod sees."""
        return self._pods / short

    def prepare_pod(self, short: str) -> Path:
        """Create and return the folder that a pod sees. Raises OSError."""
        self._pods.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self.pod(short)
        folder.mkdir(mode=0o755, exist_ok=True)
        folder.chmod(0o755)
        return folder

    def remove_pod(self, short: str) -> None:
        """Remove a pod's folder. Idempotent. Raises OSError."""
        folder = self.pod(short)
        with self._lock:
            if not folder.exists():
                return
            for generation in self._whole():
                with contextlib.suppress(OSError):
                    if (generation / RECORD).samefile(folder / RECORD):
                        os.utime(generation)
            shutil.rmtree(folder)

    def has(self, key: str) -> bool:
        """Return True if a generation is on this node."""
        return (self._generations / key / RECORD).exists()

    def handed_over(self, short: str) -> bool:
        """Return True if a pod's folder has its model."""
        return (self.pod(short) / RECORD).exists()

    def hand_over(self, key: str, short: str) -> bool:
        """Link a generation into a pod's folder. Return False if the pod has no folder (yet). Raises
        OSError, for example FileNotFoundError if the generation is not on this node.
        """
        source, target = self._generations / key, self.pod(short)
        with self._lock:
            if not target.is_dir():
                return False
            os.utime(source)
            # The record comes last, because it shows that the model is complete.
            for path in [*sorted((source / SHARDS).glob("*/*")), source / RECORD]:
                link = target / path.relative_to(source)
                link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.link(path, link)
        return True

    @contextlib.contextmanager
    def loading(self, key: str, size: int) -> Iterator[Path]:
        """Yield an empty folder for a download of `size` bytes. At the end of the block, its files become
        the generation `key`, which nobody can write; after an error the folder is removed.

        Raises ModelError if there is no room, and OSError.
        """
        # A cancelled download of the same generation may still be running, so each has a folder of its own.
        folder = self._generations / f"{key}.{next(self._numbers)}{_UNFINISHED}"
        with self._lock:
            self._generations.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._root / "boot").write_text(self._boot)
            self._make_room(size)
            folder.mkdir(mode=0o755)
            self._loading[folder] = size
        try:
            yield folder
            for path in folder.rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o444)
            with self._lock:
                if not self.has(key):
                    folder.rename(self._generations / key)
        finally:
            with self._lock:
                del self._loading[folder]
                shutil.rmtree(folder, ignore_errors=True)

    def remove_unused(self, keep_seconds: float = KEEP_SECONDS) -> None:
        """Remove the generations that no pod has used for `keep_seconds`."""
        with self._lock:
            now = time.time()
            for generation, used_at in self._unused():
                if now - used_at >= keep_seconds:
                    self._remove(generation)

    def recover(self, shorts: Collection[str]) -> None:
        """Remove what an earlier agent has left: downloads that have not ended, and the folders of all pods
        except `shorts`.
        """
        with self._lock:
            for folder in _entries(self._generations):
                if folder.name.endswith(_UNFINISHED):
                    shutil.rmtree(folder, ignore_errors=True)
        for folder in _entries(self._pods):
            if folder.name not in shorts:
                self.remove_pod(folder.name)
        with contextlib.suppress(FileNotFoundError):
            if (self._root / "boot").read_text() != self._boot:
                self.remove_unused(keep_seconds=0)

    def clear(self) -> None:
        """Remove all folders. Call this only if no pod uses a model."""
        for folder in (self._generations, self._pods):
            shutil.rmtree(folder, ignore_errors=True)
        (self._root / "boot").unlink(missing_ok=True)

    @property
    def used_bytes(self) -> int:
        """Return the size of all models on this node, with the downloads that have not ended."""
        with self._lock:
            return self._used()

    def _used(self) -> int:
        return sum(_size(one) for one in self._whole()) + sum(self._loading.values())

    def _whole(self) -> list[Path]:
        return [one for one in _entries(self._generations) if not one.name.endswith(_UNFINISHED)]

    def _unused(self) -> list[tuple[Path, float]]:
        """Return the generations that no pod uses, with the Unix time of their last use, the oldest first."""
        found = []
        for generation in self._whole():
            with contextlib.suppress(OSError):
                links = max(
                    (one.stat().st_nlink for one in generation.rglob("*") if one.is_file()), default=1
                )
                if links == 1:
                    found.append((generation, generation.stat().st_mtime))
        return sorted(found, key=lambda one: one[1])

    def _remove(self, generation: Path) -> None:
        # An agent that is killed here must not leave a part of a generation under its name.
        leftover = generation.with_name(f"{generation.name}.{next(self._numbers)}{_UNFINISHED}")
        generation.rename(leftover)
        shutil.rmtree(leftover, ignore_errors=True)
        log.info("unused model removed", key=generation.name)

    def _make_room(self, size: int) -> None:
        """Remove unused generations until `size` more bytes fit. Raises ModelError if they do not fit."""
        unused = [one for one, _ in self._unused()]
        while why := self._shortage(size):
            if not unused:
                raise ModelError(Failure.NOT_STORED, why)
            self._remove(unused.pop(0))

    def _shortage(self, size: int) -> str:
        """Return the reason why `size` more bytes do not fit; empty if they fit."""
        used = self._used()
        if self._limit and used + size > self._limit:
            return (
                f"the model has {_gib(size)}, and models that are in use have {_gib(used)} of the "
                f"{_gib(self._limit)} that the node's limit allows (agent.models.limitGiB of the chart)"
            )
        disk = os.statvfs(self._root)
        free = disk.f_bavail * disk.f_frsize
        reserve = max(self._reserve, disk.f_blocks * disk.f_frsize * self._reserve_percent // 100)
        # The files of a running download are allocated at its start, but perhaps after this check.
        if free - size - sum(self._loading.values()) < reserve:
            return (
                f"the model has {_gib(size)}, and the disk of the node has {_gib(free)} free, of which "
                f"{_gib(reserve)} must stay free (agent.models.reserveGiB and reservePercent of the chart)"
            )
        return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 2**20:.1f} MiB"
