"""The uses for which shards stay in a node's memory although no watermark stands on them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class ShardUse:
    """The uses of one shard."""

    pinned: bool = False
    """The shard is being read."""
    claimed: bool = False
    """Other nodes count on the shard as their copy, whatever else it was fetched for."""
    uploads: int = 0
    """Uploads to a store that want the shard."""


class ShardUses:
    """The uses of all shards of a job, by id.

    The event loop uses it, and so do the threads that work with the ShardStore.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, ShardUse] = {}

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def pinned(self) -> set[str]:
        """Shards that are being read."""
        return self._select(lambda use: use.pinned)

    @property
    def claimed(self) -> set[str]:
        """Shards that other nodes count on."""
        return self._select(lambda use: use.claimed)

    @property
    def uploading(self) -> set[str]:
        """Shards on their way to a store."""
        return self._select(lambda use: use.uploads > 0)

    @property
    def needed(self) -> set[str]:
        """Shards that are being read, or are on their way to a store."""
        return self._select(lambda use: use.pinned or use.uploads > 0)

    def pin(self, keys: Iterable[str]) -> None:
        """Keep shards while they are read."""
        with self._lock:
            for key in keys:
                self._use(key).pinned = True

    def unpin_all(self) -> None:
        """Let go of all shards that were read."""
        with self._lock:
            for use in self._uses.values():
                use.pinned = False
            self._remove_unused()

    def claim(self, key: str) -> None:
        """Note that another node counts on a shard."""
        with self._lock:
            self._use(key).claimed = True

    def release_claims(self, known: Collection[str]) -> None:
        """End the claims on all shards but the `known` ones and those that are being read.

        A shard that is being read may be damaged, and fetched once more: others count on it as before.
        """
        with self._lock:
            for key, use in self._uses.items():
                use.claimed = use.claimed and (use.pinned or key in known)
            self._remove_unused()

    def clear_claims(self) -> None:
        """End all claims."""
        with self._lock:
            for use in self._uses.values():
                use.claimed = False
            self._remove_unused()

    def start_upload(self, keys: Iterable[str]) -> None:
        """Keep shards for one more upload."""
        with self._lock:
            for key in keys:
                self._use(key).uploads += 1

    def end_upload(self, keys: Iterable[str]) -> None:
        """Keep shards for one upload less."""
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
