"""Garbage collection in a store. It is safe while other agents upload and commit."""

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
"""The grace period in seconds. An object is never deleted within this time after its last write. If an
upload takes longer, some of its chunks may be sent twice.
"""
DELETE_SECONDS = 60.0
"""Maximum seconds for which one garbage collection deletes manifests. The same limit applies to chunks. The
next collection deletes the rest.
"""
MARKER_SECONDS = 300.0
"""Seconds for which a deletion marker is valid after its last renewal. Deletions start only within
DELETE_SECONDS after a renewal. A slow deletion then has time to end before the marker expires.

If the collecting agent dies, nothing is committed until its marker expires.
"""


class GarbageCollector:
    """The garbage collector of one job's part of a store. All methods block, raise StoreError and are
    thread-safe.
    """

    def __init__(self, part: Part, grace_seconds: float, clock: Callable[[], float]) -> None:
        """`grace_seconds`: the grace period of objects. `clock`: measures durations in seconds."""
        self._part = part
        self._where = part.where
        self._grace = grace_seconds
        self._clock = clock

    def collect_garbage(self, keep: Keep, pinned: Collection[Generation] = ()) -> Garbage:
        """Delete the objects that `keep` does not require, except the `pinned` generations. Return what was
        deleted.
        """
        stored = self._part.inventory()
        chunks = self._part.names("chunks")
        return self.delete(
            retention.remote_garbage(stored, chunks.written, keep, chunks.now, self._grace, pinned)
        )

    def delete(self, garbage: Garbage) -> Garbage:
        """Delete the objects in `garbage`, except those in use or within the grace period. Return what was
        deleted.

        Manifests are deleted for at most DELETE_SECONDS, and then chunks for at most DELETE_SECONDS. The
        next collection deletes the rest.
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
            # A manifest that is in use but unreadable may be uploaded again, and that upload reuses its
            # chunks. This agent cannot know which chunks these are, so keep all chunks.
            lost = alive - left.manifests.keys()
            chunks = frozenset() if lost else self._delete_old("chunks", garbage.chunks - used, renew_marker)
        return Garbage(garbage.records, garbage.branches, manifests, chunks)

    def check_none_running(self) -> None:
        """Raise StoreError if any agent is deleting objects of this job."""
        now, markers, *_ = self._part.names("deletions")
        if any(now - at < MARKER_SECONDS for at in markers.values()):
            raise StoreError(
                f"{self._where}: commit: garbage collection is running there; Convoy tries again",
                retriable=True,
            )

    @contextlib.contextmanager
    def _deletion_marker(self) -> Iterator[Callable[[], float]]:
        """Keep a deletion marker in the store within the block. Yield a function that renews the marker.

        The function returns the time until which deletions may start, by the collector's clock. The
        collector calls it after it has listed the names to delete. If the listing took longer than half of
        MARKER_SECONDS, the function raises StoreError instead.

        After an error the marker stays until it expires, because failed deletions may still be in progress.
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
        """Remove deletion markers that expired long ago, and unfinished objects that are older than the
        grace period.
        """
        now, markers, *_ = self._part.names("deletions")
        self._part.remove("deletions", [one for one, at in markers.items() if now - at > 2 * MARKER_SECONDS])
        for folder in FOLDERS:
            self._part.tidy(folder, now - self._grace)

    def _old_and_gone(self, folder: str, names: Collection[str]) -> tuple[list[str], set[str]]:
        """Return the names of the objects that are older than the grace period, and the names of those that
        do not exist.
        """
        if not names:
            return [], set()
        now, written, *_ = self._part.names(folder)
        old = [name for name in names if name in written and now - written[name] > self._grace]
        return old, set(names) - written.keys()

    def _delete_old(
        self, folder: str, names: Collection[str], renew_marker: Callable[[], float]
    ) -> frozenset[str]:
        """Delete the objects that are older than the grace period. Return the names that do not exist
        afterwards.

        `renew_marker`: the function that `_deletion_marker` yields.
        """
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
    """Return the digests of all chunks that are listed in `manifests`."""
    return {chunk.digest for one in manifests for chunk in one.chunks}
