"""Deleting what a store need not keep, so that nothing goes that somebody is just coming to use."""

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
"""What was written within it is not deleted; an upload that takes longer may send some chunks twice."""
DELETE_SECONDS = 60.0
"""For which a sweep deletes what it has found to be old; the next one goes on."""
MARKER_SECONDS = 300.0
"""Seconds for which a deletion marker counts after its last renewal. A deletion that starts within
DELETE_SECONDS may take until then. If the collector dies, nothing is committed until its marker expires.
"""


class GarbageCollector:
    """In one job's part. Blocking; for several threads at once. All raise StoreError."""

    def __init__(self, part: Part, grace_seconds: float, clock: Callable[[], float]) -> None:
        """`clock`: for how long something takes."""
        self._part = part
        self._where = part.where
        self._grace = grace_seconds
        self._clock = clock

    def collect_garbage(self, keep: Keep, pinned: Collection[Generation] = ()) -> Garbage:
        """Deletes what the store need not keep; what that was."""
        stored = self._part.inventory()
        chunks = self._part.names("chunks")
        return self.delete(
            retention.remote_garbage(stored, chunks.written, keep, chunks.now, self._grace, pinned)
        )

    def delete(self, garbage: Garbage) -> Garbage:
        """Deletes these, but nothing that is in use or was written within the grace; what went.

        Breaks off after DELETE_SECONDS each of manifests and chunks: the next sweep finds the rest.
        """
        self._part.remove("records", (one.name for one in garbage.records))
        self._part.remove("branches", (f"{one}{end}" for one in garbage.branches for end in (UNDECIDED, "")))
        self._tidy()
        if not garbage.chunks and not self._aged("manifests", garbage.manifests)[0]:
            return Garbage(garbage.records, garbage.branches)
        with self._marked() as renew_marker:
            left = self._part.inventory()
            heads = {head for one in left.records.values() for head in one.shards.values()}
            alive = retention.reachable(heads, left.manifests)
            manifests = self._expire("manifests", garbage.manifests - alive, renew_marker)
            used = digests(one for key, one in left.manifests.items() if key not in manifests)
            # A manifest that is in use but cannot be read may be put again: its chunks stay till then.
            lost = alive - left.manifests.keys()
            chunks = frozenset() if lost else self._expire("chunks", garbage.chunks - used, renew_marker)
        return Garbage(garbage.records, garbage.branches, manifests, chunks)

    def check_none_running(self) -> None:
        """StoreError while somebody deletes."""
        now, sweeps, *_ = self._part.names("deletions")
        if any(now - at < MARKER_SECONDS for at in sweeps.values()):
            raise StoreError(f"{self._where}: commit: what is obsolete is just being deleted", retriable=True)

    @contextlib.contextmanager
    def _marked(self) -> Iterator[Callable[[], float]]:
        """Says so meanwhile; after an error too, until that lapses: what failed may still be under way. Gives
        what says it again, and until when that allows to delete: listings of many names take long.
        """
        name, last = secrets.token_hex(8), self._clock()
        self._part.blobs.put(self._part.key("deletions", name), b"")

        def again() -> float:
            nonlocal last
            now = self._clock()
            if now - last > MARKER_SECONDS / 2:
                raise StoreError(
                    f"{self._where}: sweep: looking through the store takes {now - last:.0f} s, too long for "
                    "anything to be deleted",
                    retriable=True,
                )
            self._part.blobs.put(self._part.key("deletions", name), b"")
            last = now
            return now + DELETE_SECONDS

        yield again
        self._part.remove("deletions", [name])

    def _tidy(self) -> None:
        """Clears up after what has broken off."""
        now, sweeps, *_ = self._part.names("deletions")
        self._part.remove("deletions", [one for one, at in sweeps.items() if now - at > 2 * MARKER_SECONDS])
        for folder in FOLDERS:
            self._part.tidy(folder, now - self._grace)

    def _aged(self, folder: str, names: Collection[str]) -> tuple[list[str], set[str]]:
        """Those of them that were not written within the grace, and those that are not there any more."""
        if not names:
            return [], set()
        now, written, *_ = self._part.names(folder)
        old = [name for name in names if name in written and now - written[name] > self._grace]
        return old, set(names) - written.keys()

    def _expire(self, folder: str, names: Collection[str], renew_marker: Callable[[], float]) -> frozenset[str]:
        """Those of them that are not there any more. `renew_marker`: as `_marked` gives it."""
        old, gone = self._aged(folder, names)
        if not old:
            return frozenset(gone)
        until = renew_marker()

        def remove(name: str) -> bool:
            if self._clock() >= until:
                return False
            self._part.blobs.remove(self._part.key(folder, name))
            return True

        gone.update(name for name, done in zip(old, self._part.many(remove, old), strict=True) if done)
        return frozenset(gone)


def digests(manifests: Iterable[Manifest]) -> set[str]:
    """Of all their chunks."""
    return {chunk.digest for one in manifests for chunk in one.chunks}
