"""One job's checkpoints in a remote store: upload, restore and commit. Chunks and manifests are named by
their digests.

The layout is described in part.py, and deletion in garbage_collection.py.
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
from convoy_agents.tiercheck.stores.garbage_collection import GRACE_SECONDS, GarbageCollector, chunk_digests
from convoy_agents.tiercheck.stores.part import FOLDERS, UNDECIDED, Part
from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch, Chunk, Inventory, Manifest, Record
from convoy_controllers.checkpoint.retention import Garbage, Keep

_ROUNDS = 3


class Packer(Protocol):
    """An encoder that compresses a chunk if compressing takes less time than it saves. Thread-safe."""

    def pack(self, data: digest.Buffer) -> digest.Buffer:
        """Return the chunk in the form in which it should be sent: encoded (planes.py) or plain."""

    def record_sent(self, length: int, size: int, seconds: float) -> None:
        """Record that a chunk of `length` bytes was sent as `size` bytes in `seconds`."""


@dataclass(frozen=True, slots=True)
class CommitRules:
    """The settings that make commits safe while other agents commit and delete."""

    conditional: bool = True
    """True if exactly one of several concurrent `Blobs.create` calls for a key succeeds, as `probe` found.
    If False, nothing is committed.
    """
    grace_seconds: float = GRACE_SECONDS
    """The grace period in seconds. An object is never deleted within this time after its last write."""
    clock: Callable[[], float] = time.monotonic
    """Returns the time in seconds, to measure durations."""


class Store:
    """One job's part of a store. All methods block, raise StoreError and are thread-safe."""

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
        """`report`: called with a message for each malformed object; None to log the message. `packer`:
        encodes chunks; None to send them plain.
        """
        self._part = Part(blobs, namespace, job_uid, report)
        self._conditional = rules.conditional
        self._grace = rules.grace_seconds
        self._clock = rules.clock
        self._packer = packer
        self._garbage = GarbageCollector(self._part, rules.grace_seconds, rules.clock)

    @property
    def where(self) -> str:
        """The location of the job's part of the store, for messages."""
        return self._part.where

    # Uploading and restoring.

    def put_chunk(
        self, chunk: Chunk, data: digest.Buffer, pace: Callable[[int], None] = lambda _: None
    ) -> int:
        """Write a chunk. Return the number of bytes that were sent. Idempotent. Raises Damaged if `data`
        does not match the chunk.

        `pace`: a function that gets a number of bytes and waits until they may be sent.
        """
        _check(chunk, data)
        key = self._part.key("chunks", chunk.digest)
        body = data if self._packer is None else self._packer.pack(data)
        started = time.monotonic()
        pace(len(body))
        self._part.blobs.put(key, body)
        if self._packer is not None:
            self._packer.record_sent(len(data), len(body), time.monotonic() - started)
        return len(body)

    def get_chunk(self, chunk: Chunk) -> bytes:
        """Return the plain bytes of a chunk. Raises Damaged if the chunk is missing or damaged."""
        # Read up to one byte more than the chunk's length, so that a longer blob is detected.
        data = self._part.blobs.get(self._part.key("chunks", chunk.digest), limit=chunk.length + 1)
        if data is None:
            raise Damaged(f"chunk {chunk.digest} is missing in {self.where}")
        try:
            whole = bytes(planes.unpack(data, chunk.length))
        except Damaged as error:
            raise Damaged(f"chunk {chunk.digest} is damaged: {error}") from error
        _check(chunk, whole)
        return whole

    def chunks(self) -> Mapping[str, float]:
        """Return the Unix time in seconds of each chunk's last write or touch, by digest."""
        return self._part.names("chunks").written

    def listing(self, folder: str) -> Listing:
        """List the objects in one of FOLDERS."""
        return self._part.names(folder)

    def reusable(self, names: Collection[str]) -> Mapping[str, bool]:
        """Return those of the chunks `names` that exist, by digest. The value is True if the chunk was
        written recently, so that it need not be touched before reuse.
        """
        found = self._part.names("chunks", names)
        return {name: self._young(found.now, at) for name, at in found.written.items()}

    def touch(self, names: Iterable[str]) -> set[str]:
        """Set the write time of the chunks `names` to now. Return those that must be sent instead, because
        they do not exist or the store cannot touch them.
        """
        wanted = list(names)
        done = self._part.run_parallel(
            lambda name: self._part.blobs.touch(self._part.key("chunks", name)), wanted
        )
        return {name for name, there in zip(wanted, done, strict=True) if not there}

    def put_manifest(self, manifest: Manifest) -> None:
        """Write a manifest. All its chunks must already be in the store. Idempotent."""
        self._part.blobs.put(self._part.key("manifests", manifest.id), manifest.text)

    def manifest(self, key: str) -> Manifest | None:
        """See `Part.manifest`."""
        return self._part.manifest(key)

    def put_trace(self, name: str, data: digest.Buffer) -> None:
        """Write a trace. Replace an earlier one of this name. Raises ValueError for the name of no trace."""
        self._part.blobs.put(self._trace_key(name), data)

    def trace(self, name: str) -> bytes | None:
        """Return a trace; None if it does not exist. Raises ValueError for the name of no trace."""
        return self._part.blobs.get(self._trace_key(name))

    def _trace_key(self, name: str) -> str:
        if not FOLDERS["traces"].fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a trace")
        return self._part.key("traces", name)

    # Records and branches.

    def put_branch(self, branch: Branch) -> bool:
        """Write a branch. It names the generation from which an incarnation starts, or says that this is
        not decided yet. Return False if the store already has a different decision for this incarnation.

        An undecided branch has a name of its own, so it cannot replace a decision that was written before
        it.
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
        """Write the record of a complete generation. Return False if the store has another record of this
        generation.

        Return True also if the identical record exists, since the response to an earlier call may have been
        lost. Raises Missing, and writes nothing, if an object that the record needs does not exist.
        """
        key = self._part.key("records", record.generation.name)
        text = records.seal(record.text)
        standing = self._part.blobs.get(key)
        if standing is None:
            self._protect_objects(record)
        elif standing != text:
            return False
        elif self._part.blobs.create(key, text):
            # `get` found the record, but `create` found none. So garbage collection has deleted the record
            # between the two calls, and perhaps also the objects that it needs.
            self._part.blobs.remove(key)
            raise StoreError(
                f"{self.where}: {key} was deleted during the call; Convoy tries again", retriable=True
            )
        # Call this even if the record exists. Its writer may have died before the record was durable.
        return self._create_once(key, text)

    def inventory(self) -> Inventory:
        """See `Part.inventory`."""
        return self._part.inventory()

    # Deleting.

    def collect_garbage(self, keep: Keep, pinned: Collection[Generation] = ()) -> Garbage:
        """See `GarbageCollector.collect_garbage`."""
        return self._garbage.collect_garbage(keep, pinned)

    def delete(self, garbage: Garbage) -> Garbage:
        """See `GarbageCollector.delete`."""
        return self._garbage.delete(garbage)

    def erase(self) -> int:
        """Delete all objects of the job, whatever their age. Return the number of deleted objects.

        Use this only for a job that is over, because a running upload may write some objects again. After
        an error, call it again.
        """
        done = 0
        for folder in FOLDERS:
            found = self._part.names(folder)
            self._part.remove(folder, sorted(found.written))
            self._part.tidy(folder, math.inf)
            done += len(found.written) + len(found.unfinished)
        return done

    # Helpers.

    def _young(self, now: float, written: float) -> bool:
        return now - written < self._grace / 2

    def _create_once(self, key: str, text: bytes) -> bool:
        """Write an object unless its key exists. Return True if the stored object then has this text."""
        if not self._conditional:
            raise StoreError(
                f"{self.where}: it ignores conditional writes, or was not probed yet, so nothing is "
                "committed there",
                retriable=False,
            )
        if self._part.blobs.create(key, text):
            return True
        standing = self._part.blobs.get(key)
        if standing is None:
            raise StoreError(
                f"{self.where}: {key} was deleted during the call; Convoy tries again", retriable=True
            )
        return standing == text

    def _protect_objects(self, record: Record) -> None:
        """Check that every object that the record needs exists. Touch the old ones, so that none is deleted
        before the record is written.
        """
        for _ in range(_ROUNDS):
            started = self._clock()
            self._garbage.check_none_running()
            below, unknown = self._needed_manifests(record)
            needed = chunk_digests(below.values())
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
            self._part.run_parallel(self.put_manifest, old_manifests)
            if lost := self.touch(old_chunks):
                raise Missing(self.where, frozenset(), frozenset(lost))
        raise StoreError(
            f"{self.where}: commit: listing the store takes longer than the grace period of "
            f"{self._grace:g} s allows; raise the grace period",
            retriable=True,
        )

    def _needed_manifests(self, record: Record) -> tuple[dict[str, Manifest], set[str]]:
        """Return the manifests that the record needs, by id, and the ids of those that do not exist."""
        found: dict[str, Manifest] = {}
        unknown: set[str] = set()
        waiting = set(record.shards.values())
        while waiting:
            keys = sorted(waiting)
            for key, one in zip(keys, self._part.run_parallel(self.manifest, keys), strict=True):
                if one is None:
                    unknown.add(key)
                else:
                    found[key] = one
            waiting = {one.extends for one in found.values() if one.extends} - found.keys() - unknown
        return found, unknown


def _check(chunk: Chunk, data: digest.Buffer) -> None:
    if len(data) != chunk.length or digest.digest(data) != chunk.digest:
        raise Damaged(f"chunk {chunk.digest} is damaged")
