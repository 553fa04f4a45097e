"""One job's checkpoints in a remote store, addressed by content: uploading, restoring, committing.

What lies where is in part.py, deleting in garbage_collection.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from convoy_agents.tiercheck import digest, planes
from convoy_agents.tiercheck.stores.blobs import Blobs, Listing
from convoy_agents.tiercheck.stores.errors import Damaged, Missing, StoreError
from convoy_agents.tiercheck.stores.garbage_collection import GRACE_SECONDS, GarbageCollector, digests
from convoy_agents.tiercheck.stores.part import FOLDERS, UNDECIDED, Part
from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record
from convoy_controllers.checkpoint.retention import Garbage, Keep

_ROUNDS = 3


class Packer(Protocol):
    """Makes chunks shorter where that pays. Used by several threads at once."""

    def pack(self, data: digest.Buffer) -> digest.Buffer:
        """A chunk as it is to be sent: encoded (planes.py), or as it is."""

    def sent(self, length: int, size: int, seconds: float) -> None:
        """A chunk of this length was sent as so many bytes."""


@dataclass(frozen=True, slots=True)
class CommitRules:
    """The rules that keep a commit whole while other agents commit and delete."""

    conditional: bool = True
    """True if exactly one of several `Blobs.create` of a key wins, as `probe` finds out. Otherwise the store
    is read, and nothing is committed."""
    grace_seconds: float = GRACE_SECONDS
    """Seconds for which nothing that was written is deleted."""
    clock: Callable[[], float] = time.monotonic
    """The clock that measures how long something takes."""


class Store:
    """One job's part of a store. Blocking; for several threads at once. All raise StoreError."""

    def __init__(
        self,
        blobs: Blobs,
        namespace: str,
        job_uid: str,
        *,
        rules: CommitRules = CommitRules(),
        report: Callable[[str], None] | None = None,
        packer: Packer | None = None,
    ) -> None:
        """`report`: called with the name of each malformed text. `packer`: without one chunks are put as they
        are.
        """
        self._part = Part(blobs, namespace, job_uid, report)
        self._conditional = rules.conditional
        self._grace = rules.grace_seconds
        self._clock = rules.clock
        self._packer = packer
        self._garbage = GarbageCollector(self._part, rules.grace_seconds, rules.clock)

    @property
    def where(self) -> str:
        """The place, for messages."""
        return self._part.where

    # Uploading and restoring.

    def put_chunk(
        self, chunk: Chunk, data: digest.Buffer, pace: Callable[[int], None] = lambda _: None
    ) -> int:
        """The bytes that were sent. Idempotent. Damaged, and nothing is sent, when they are not the chunk's.

        `pace`: waits until so many bytes may be sent.
        """
        _check(chunk, data)
        key = self._part.key("chunks", chunk.digest)
        body = data if self._packer is None else self._packer.pack(data)
        started = time.monotonic()
        pace(len(body))
        self._part.blobs.put(key, body)
        if self._packer is not None:
            self._packer.sent(len(data), len(body), time.monotonic() - started)
        return len(body)

    def get_chunk(self, chunk: Chunk) -> bytes:
        """Damaged when it is not there or not as it was."""
        # One more than it may have: what is longer is seen.
        data = self._part.blobs.get(self._part.key("chunks", chunk.digest), limit=chunk.length + 1)
        if data is None:
            raise Damaged(f"chunk {chunk.digest} is not in {self.where}")
        try:
            whole = bytes(planes.unpack(data, chunk.length))
        except Damaged as error:
            raise Damaged(f"chunk {chunk.digest} is damaged: {error}") from error
        _check(chunk, whole)
        return whole

    def chunks(self) -> Mapping[str, float]:
        """Return the time at which each chunk was last written or promised, in Unix seconds, by digest."""
        return self._part.names("chunks").written

    def listing(self, folder: str) -> Listing:
        """Return the objects in one of FOLDERS, by digest, id or name."""
        return self._part.names(folder)

    def reusable(self, names: Collection[str]) -> Mapping[str, bool]:
        """Those of these chunks that are there, and whether one may be used again without a touch."""
        found = self._part.names("chunks", names)
        return {name: self._young(found.now, at) for name, at in found.written.items()}

    def touch(self, names: Iterable[str]) -> set[str]:
        """Promises chunks anew; those that have to be sent, since they went or the store cannot."""
        wanted = list(names)
        done = self._part.many(lambda name: self._part.blobs.touch(self._part.key("chunks", name)), wanted)
        return {name for name, there in zip(wanted, done, strict=True) if not there}

    def put_manifest(self, manifest: Manifest) -> None:
        """Its chunks have all been put. Idempotent."""
        self._part.blobs.put(self._part.key("manifests", manifest.id), manifest.text)

    def manifest(self, key: str) -> Manifest | None:
        """As `Part.manifest`."""
        return self._part.manifest(key)

    # What is known.

    def put_branch(self, branch: Branch) -> bool:
        """Where an incarnation started. False when it was decided otherwise before, and that stands.

        Undecided and decided ones have names of their own, so that a late undecided one replaces nothing.
        """
        key = self._part.key("branches", str(branch.incarnation))
        text = records.seal(branch.text)
        if branch.decided:
            if not self._create_once(key, text):
                return False
            self._part.blobs.remove(key + UNDECIDED)
            return True
        if self._part.blobs.get(key) is not None:
            return False
        self._part.blobs.put(key + UNDECIDED, text)
        return True

    def commit(self, record: Record) -> bool:
        """The generation is whole here. False when another record of it stands.

        True also when this very record is there already: an answer may have been lost. Missing, and nothing
        is written, when something it stands on is not there.
        """
        key = self._part.key("records", record.generation.name)
        text = records.seal(record.text)
        standing = self._part.blobs.get(key)
        if standing is None:
            self._secure(record)
        elif standing != text:
            return False
        elif self._part.blobs.create(key, text):
            # A sweep has deleted it since, and perhaps what it stands on.
            self._part.blobs.remove(key)
            raise StoreError(f"{self.where}: {key} was there, and is gone; try again", retriable=True)
        # Also one that stands: who wrote it may have died before it was durable.
        return self._create_once(key, text)

    def inventory(self) -> Inventory:
        """As `Part.inventory`."""
        return self._part.inventory()

    # Deleting.

    def collect_garbage(self, keep: Keep, pinned: Collection[Generation] = ()) -> Garbage:
        """As `GarbageCollector.sweep`."""
        return self._garbage.collect_garbage(keep, pinned)

    def delete(self, garbage: Garbage) -> Garbage:
        """As `GarbageCollector.delete`."""
        return self._garbage.delete(garbage)

    def erase(self) -> int:
        """Deletes all there is of the job, however young; how many objects. For a job that is over: an upload
        that is under way may bring some of it back. Again after an error, until nothing is left.
        """
        done = 0
        for folder in FOLDERS:
            found = self._part.names(folder)
            self._part.remove(folder, sorted(found.written))
            self._part.tidy(folder, math.inf)
            done += len(found.written) + len(found.unfinished)
        return done

    # Inside.

    def _young(self, now: float, written: float) -> bool:
        return now - written < self._grace / 2

    def _create_once(self, key: str, text: bytes) -> bool:
        """Write an object unless its key exists; return whether its text is the one that stands for good."""
        if not self._conditional:
            raise StoreError(
                f"{self.where}: it does not honour conditional writes, or has not been tried yet: nothing is "
                "committed there",
                retriable=False,
            )
        if self._part.blobs.create(key, text):
            return True
        standing = self._part.blobs.get(key)
        if standing is None:
            raise StoreError(f"{self.where}: {key} was there, and is gone; try again", retriable=True)
        return standing == text

    def _secure(self, record: Record) -> None:
        """Everything the record stands on is there, and is not deleted before the record can be."""
        for _ in range(_ROUNDS):
            started = self._clock()
            self._garbage.check_none_running()
            below, unknown = self._below(record)
            needed = digests(below.values())
            now, manifests, *_ = self._part.names("manifests")
            chunks = self._part.names("chunks").written
            unknown |= below.keys() - manifests.keys()
            if unknown or not needed <= chunks.keys():
                raise Missing(self.where, frozenset(unknown), frozenset(needed - chunks.keys()))
            old_manifests = [one for key, one in below.items() if not self._young(now, manifests[key])]
            old_chunks = [name for name in needed if not self._young(now, chunks[name])]
            if not old_manifests and not old_chunks:
                if self._clock() - started > self._grace / 4:
                    continue
                return
            self._part.many(self.put_manifest, old_manifests)
            if lost := self.touch(old_chunks):
                raise Missing(self.where, frozenset(), frozenset(lost))
        raise StoreError(
            f"{self.where}: commit: looking through the store takes longer than its grace of "
            f"{self._grace:g} s allows; raise the grace",
            retriable=True,
        )

    def _below(self, record: Record) -> tuple[dict[str, Manifest], set[str]]:
        """Manifests the record stands on, by id; ids of those that are not there."""
        found: dict[str, Manifest] = {}
        unknown: set[str] = set()
        waiting = set(record.shards.values())
        while waiting:
            keys = sorted(waiting)
            for key, one in zip(keys, self._part.many(self.manifest, keys), strict=True):
                if one is None:
                    unknown.add(key)
                else:
                    found[key] = one
            waiting = {one.extends for one in found.values() if one.extends} - found.keys() - unknown
        return found, unknown


def _check(chunk: Chunk, data: digest.Buffer) -> None:
    if len(data) != chunk.length or digest.digest(data) != chunk.digest:
        raise Damaged(f"chunk {chunk.digest} is damaged")
