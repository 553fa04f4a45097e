"""Garbage collection in a store, safe beside uploads and commits of other agents."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator

from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.part import FOLDERS, UNDECIDED, Part
from convoy_controllers.checkpoint import retention
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Manifest
from convoy_controllers.checkpoint.retention import Garbage, Keep

GRACE_SECONDS = 1800.0
"""Seconds for which a written object is never deleted. An upload that takes longer may send some chunks
twice.
"""
DELETE_SECONDS = 60.0
"""Seconds for which one collection deletes old objects. The next collection continues."""
MARKER_SECONDS = 300.0
"""Seconds for which a deletion marker counts after its last renewal. A deletion that starts within
DELETE_SECONDS may take until then. If the collector dies, nothing is committed until its marker expires.
"""


class GarbageCollector:
    """The garbage collector of one job's part. It blocks, raises StoreError, and is thread-safe."""

    def __init__(self, part: Part, grace_seconds: float, clock: Callable[[], float]) -> None:
        """`clock`: the clock that measures durations."""
        self._part = part
        self._where = part.where
        self._grace = grace_seconds
        self._clock = clock

    def collect_garbage(self, keep: Keep, pinned: Collection[Generation] = ()) -> Garbage:
        """Delete everything that the store need not keep. Return what was deleted."""
        stored = self._part.inventory()
        chunks = self._part.names("chunks")
        return self.delete(
            retention.remote_garbage(stored, chunks.written, keep, chunks.now, self._grace, pinned)
        )

    def delete(self, garbage: Garbage) -> Garbage:
        """Delete these objects, except those in use or written within the grace. Return what was deleted.

        It stops after DELETE_SECONDS each for manifests and chunks. The next collection finds the rest.
        """
        self._part.remove("records", (one.name for one in garbage.records))
        self._part.remove("branches", (f"{one}{end}" for one in garbage.branches for end in (UNDECIDED, "")))
        self._tidy()
        if not garbage.chunks and not self._old_and_gone("manifests", garbage.manifests)[0]:
            return Garbage(garbage.records, garbage.branches)
        with self._deletion_marker() as renew_marker:
            left = self._part.inventory()
            heads = {head for one in left.records.values() for head in one.shards.values()}
            alive = retention.reachable(heads, left.manifests)
            manifests = self._delete_old("manifests", garbage.manifests - alive, renew_marker)
            used = chunk_digests(one for key, one in left.manifests.items() if key not in manifests)
            # A manifest that is in use but unreadable may be uploaded again, so its chunks must stay until
            # then.
            lost = alive - left.manifests.keys()
            chunks = frozenset() if lost else self._delete_old("chunks", garbage.chunks - used, renew_marker)
        return Garbage(garbage.records, garbage.branches, manifests, chunks)

    def check_none_running(self) -> None:
        """Raise StoreError while any agent deletes objects."""
        now, markers, *_ = self._part.names("deletions")
        if any(now - at < MARKER_SECONDS for at in markers.values()):
            raise StoreError(
                f"{self._where}: commit: garbage collection is running there; Convoy tries again",
                retriable=True,
            )

    @contextlib.contextmanager
    def _deletion_marker(self) -> Iterator[Callable[[], float]]:
        """Keep a deletion marker in the store within the block. Yield a function that renews it.

        That function returns the time until which deletions may start, since listings of many names take
        long. After an error the marker stays until it expires, because failed deletions may still be in
        progress.
        """
        name, last = secrets.token_hex(8), self._clock()
        self._part.blobs.put(self._part.key("deletions", name), b"")

        def again() -> float:
            nonlocal last
            now = self._clock()
            if now - last > MARKER_SECONDS / 2:
                raise StoreError(
                    f"{self._where}: garbage collection: listing the store takes {now - last:.0f} s, "
                    "too long to delete anything safely",
                    retriable=True,
                )
            self._part.blobs.put(self._part.key("deletions", name), b"")
            last = now
            return now + DELETE_SECONDS

        yield again
        self._part.remove("deletions", [name])

    def _tidy(self) -> None:
        """Remove expired markers and unfinished objects."""
        now, markers, *_ = self._part.names("deletions")
        self._part.remove("deletions", [one for one, at in markers.items() if now - at > 2 * MARKER_SECONDS])
        for folder in FOLDERS:
            self._part.tidy(folder, now - self._grace)

    def _old_and_gone(self, folder: str, names: Collection[str]) -> tuple[list[str], set[str]]:
        """Return those names that were written before the grace, and the set of those that are gone."""
        if not names:
            return [], set()
        now, written, *_ = self._part.names(folder)
        old = [name for name in names if name in written and now - written[name] > self._grace]
        return old, set(names) - written.keys()

    def _delete_old(
        self, folder: str, names: Collection[str], renew_marker: Callable[[], float]
    ) -> frozenset[str]:
        """Delete the old ones of these names. Return those that are gone. `renew_marker`: see `_marked`."""
        old, gone = self._old_and_gone(folder, names)
        if not old:
            return frozenset(gone)
        until = renew_marker()

        def remove(name: str) -> bool:
            if self._clock() >= until:
                return False
            self._part.blobs.remove(self._part.key(folder, name))
            return True

        gone.update(
            name for name, done in zip(old, self._part.run_parallel(remove, old), strict=True) if done
        )
        return frozenset(gone)


def chunk_digests(manifests: Iterable[Manifest]) -> set[str]:
    """Return the digests of all chunks of these manifests."""
    return {chunk.digest for one in manifests for chunk in one.chunks}
