"""Uses that keep shards in a node's memory although no watermark needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class ShardUse:
    """The uses of one shard."""

    pinned: bool = False
    """True while the shard is being read for a restore."""
    is_copy: bool = False
    """True if the shard is another node's copy, even if it was fetched for something else."""
    uploads: int = 0
    """Number of uploads to a store that need the shard."""


class ShardUses:
    """The uses of all shards of a job, by id. Thread-safe: the event loop and the ShardStore's threads use
    it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, ShardUse] = {}

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def pinned(self) -> set[str]:
        """Ids of shards that are being read."""
        return self._select(lambda use: use.pinned)

    @property
    def copies(self) -> set[str]:
        """Ids of shards that are other nodes' copies."""
        return self._select(lambda use: use.is_copy)

    @property
    def uploading(self) -> set[str]:
        """Ids of shards that are being uploaded."""
        return self._select(lambda use: use.uploads > 0)

    @property
    def needed(self) -> set[str]:
        """Ids of shards that are being read or uploaded."""
        return self._select(lambda use: use.pinned or use.uploads > 0)

    def pin(self, keys: Iterable[str]) -> None:
        """Keep shards while they are read."""
        with self._lock:
            for key in keys:
                self._use(key).pinned = True

    def unpin_all(self) -> None:
        """Release all shards that were kept for reading."""
        with self._lock:
            for use in self._uses.values():
                use.pinned = False
            self._remove_unused()

    def mark_copy(self, key: str) -> None:
        """Record that a shard is another node's copy."""
        with self._lock:
            self._use(key).is_copy = True

    def unmark_copies_except(self, known: Collection[str]) -> None:
        """End all claims except those on `known` shards and on shards that are being read.

        A shard that is being read may be damaged and fetched again. It stays another node's copy meanwhile.
        """
        with self._lock:
            for key, use in self._uses.items():
                use.is_copy = use.is_copy and (use.pinned or key in known)
            self._remove_unused()

    def unmark_all_copies(self) -> None:
        """End all claims."""
        with self._lock:
            for use in self._uses.values():
                use.is_copy = False
            self._remove_unused()

    def start_upload(self, keys: Iterable[str]) -> None:
        """Keep shards for one more upload."""
        with self._lock:
            for key in keys:
                self._use(key).uploads += 1

    def end_upload(self, keys: Iterable[str]) -> None:
        """Release shards of one upload."""
        with self._lock:
            for key in keys:
                use = self._use(key)
                use.uploads = max(0, use.uploads - 1)
            self._remove_unused()

    def _use(self, key: str) -> ShardUse:
        return self._uses.setdefault(key, ShardUse())

    def _select(self, wanted: Callable[[ShardUse], bool]) -> set[str]:
        with self._lock:
            return {key for key, use in self._uses.items() if wanted(use)}

    def _remove_unused(self) -> None:
        self._uses = {key: use for key, use in self._uses.items() if use != ShardUse()}
