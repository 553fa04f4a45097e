"""The operations that use the shards in a node's memory: restores, copies for other nodes, and uploads. A
shard that a restore or an upload needs is not dropped as garbage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class ShardUse:
    """The operations that use one shard: restores, copies for other nodes, and uploads."""

    pinned: bool = False
    """True while the shard is needed for a restore."""
    is_copy: bool = False
    """True if this node holds the shard as a copy for another node. The shard may also have been fetched
    for a restore.
    """
    uploads: int = 0
    """Number of running uploads to a store that need the shard."""


class ShardUses:
    """The operations that use each shard of a job, by shard id. Thread-safe, because the event loop and the
    ShardStore's threads call it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, ShardUse] = {}

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def pinned(self) -> set[str]:
        """The ids of the shards that are needed for a restore."""
        return self._select(lambda use: use.pinned)

    @property
    def copies(self) -> set[str]:
        """The ids of the shards that this node holds as copies for other nodes."""
        return self._select(lambda use: use.is_copy)

    @property
    def uploading(self) -> set[str]:
        """The ids of the shards that are being uploaded."""
        return self._select(lambda use: use.uploads > 0)

    @property
    def needed(self) -> set[str]:
        """The ids of the shards that are needed for a restore or are being uploaded."""
        return self._select(lambda use: use.pinned or use.uploads > 0)

    def pin(self, keys: Iterable[str]) -> None:
        """Keep shards because a restore needs them, until `unpin_all` is called."""
        with self._lock:
            for key in keys:
                self._use(key).pinned = True

    def unpin_all(self) -> None:
        """Record that no restore needs any of the shards now."""
        with self._lock:
            for use in self._uses.values():
                use.pinned = False
            self._remove_unused()

    def mark_copy(self, key: str) -> None:
        """Record that this node holds a shard as a copy for another node."""
        with self._lock:
            self._use(key).is_copy = True

    def unmark_copies_except(self, known: Collection[str]) -> None:
        """Remove the copy mark from every shard that is neither in `known` nor pinned for a restore.

        A pinned shard may be dropped as damaged and then fetched again, so it is missing from `known` for a
        time. Its copy mark stays.
        """
        with self._lock:
            for key, use in self._uses.items():
                use.is_copy = use.is_copy and (use.pinned or key in known)
            self._remove_unused()

    def unmark_all_copies(self) -> None:
        """Remove the copy mark from all shards."""
        with self._lock:
            for use in self._uses.values():
                use.is_copy = False
            self._remove_unused()

    def start_upload(self, keys: Iterable[str]) -> None:
        """Keep shards because one more upload needs them, until `end_upload` is called for this upload."""
        with self._lock:
            for key in keys:
                self._use(key).uploads += 1

    def end_upload(self, keys: Iterable[str]) -> None:
        """Record that one upload no longer needs these shards."""
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
