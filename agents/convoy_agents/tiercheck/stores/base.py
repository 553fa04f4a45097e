"""One job's checkpoints in a remote store, addressed by content.

    chunks/<digest>                 bytes, perhaps encoded (planes.py); the digest is that of the chunk itself
    manifests/<id>                  of a shard; written after its chunks
    records/<generation>            COMMIT; written once, after all it stands on
    branches/<number>               where an incarnation began; `<number>.looking` while that is undecided
    sweeps/<random>                 somebody is deleting

A chunk that is encoded is shorter than the chunk, and begins with a head of its own. Who puts one that is
there in the other form changes nothing: either is replaced as a whole, and gives the same bytes.

Records and branches end with the SHA-256 of their text; a manifest's is its name. Nothing else is kept: what
there is follows from listings.

A chunk that an upload finds here is used again, so it must not be deleted under that upload. Two things see
to it. What was written within the grace is never deleted, and whoever uses what is old writes it anew
(`touch`). And who deletes first says so in `sweeps/` and then looks at the times; who commits first makes
everything young, then sees that no sweep is on, then looks whether everything is there. Whichever of the two
comes first, the other one sees it.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

import structlog

from convoy_agents.tiercheck import digest, planes
from convoy_agents.tiercheck.stores.errors import Damaged, Missing, StoreError
from convoy_controllers.checkpoint import records, retention
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import (
    Branch,
    Chunk,
    Inventory,
    MalformedError,
    Manifest,
    Record,
)
from convoy_controllers.checkpoint.retention import Doomed, Keep

T = TypeVar("T")
R = TypeVar("R")

GRACE_SECONDS = 1800.0
"""What was written within it is not deleted; an upload that takes longer may send some chunks twice."""
SWEEP_SECONDS = 60.0
"""For which a sweep deletes what it has found to be old; the next one goes on."""
WORD_SECONDS = 300.0
"""For which the word that a sweep is on counts, from when it was last said: a deletion that was begun within
SWEEP_SECONDS may take until then. Who sweeps may die, and nothing is committed until its word counts no more.
"""
_THREADS = 8
_ROUNDS = 3
_LOOKING = ".looking"
MAX_TEXT = 32 * 1024 * 1024
"""Bytes of a record, branch or manifest that are read: one of 700,000 chunks has as many."""
FOLDERS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "records": re.compile(r"gen-[0-9]{1,18}-[0-9]{1,18}"),
        "branches": re.compile(rf"[0-9]{{1,18}}({re.escape(_LOOKING)})?"),
        "manifests": re.compile(r"[0-9a-f]{64}"),
        "chunks": re.compile(r"[0-9a-f]{32}"),
        "sweeps": re.compile(r"[0-9a-f]{16}"),
    }
)
"""Of a job, in the order in which they are deleted: nothing half deleted looks whole. What is in them has
such names; anything else is somebody else's, and is left alone."""
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""Of a namespace, or the uid of a job."""

log = structlog.get_logger()


class Listing(NamedTuple):
    """What lies in a folder."""

    now: float
    """By the clock that the times are from."""
    written: Mapping[str, float]
    """By name, Unix seconds when it was last written."""
    sizes: Mapping[str, int] = MappingProxyType({})
    """By name, bytes."""
    unfinished: Mapping[str, int] = MappingProxyType({})
    """Bytes of what is just being written, or broke off, by a name of its own: `Blobs.tidy` removes it."""


class Blobs(Protocol):
    """Names with bytes. Blocking; used by several threads at once. All raise StoreError."""

    @property
    def where(self) -> str:
        """The place, for messages."""

    def put(self, key: str, data: digest.Buffer) -> None:
        """All of the bytes, durable, or nothing. Replaces what is there."""

    def create(self, key: str, data: digest.Buffer) -> bool:
        """As `put`, if nothing is there; of several at once one does it. Whether it was this one."""

    def get(self, key: str, span: tuple[int, int] | None = None, limit: int = MAX_TEXT) -> bytes | None:
        """The bytes, or (offset, length) of them; None when nothing is there.

        Of what is longer than `limit` only so many bytes are read: whoever reads sees that it is not whole.
        """

    def names(self, folder: str, alive: Callable[[], None] = lambda: None) -> Listing:
        """Names right in a folder. `alive` is called again and again while the store answers."""

    def folders(self, folder: str, alive: Callable[[], None] = lambda: None) -> set[str]:
        """Names of the folders right in a folder, or in all of it when it is empty. `alive` as in `names`."""

    def touch(self, key: str) -> bool:
        """Written now, with the same bytes. False when nothing is there, or the store cannot."""

    def remove(self, key: str) -> None:
        """Nothing is there any more. Idempotent."""

    def tidy(self, folder: str, before: float, alive: Callable[[], None] = lambda: None) -> None:
        """Clears up what was begun before then and broke off; a folder that is empty may go. `alive` as in
        `names`.
        """

    def refuses_damage(self, key: str) -> bool:
        """Sends bytes with a checksum that is not theirs; whether the store sees it."""


class Packer(Protocol):
    """Makes chunks shorter where that pays. Used by several threads at once."""

    def pack(self, data: digest.Buffer) -> digest.Buffer:
        """A chunk as it is to be sent: encoded (planes.py), or as it is."""

    def sent(self, length: int, size: int, seconds: float) -> None:
        """A chunk of this length was sent as so many bytes."""


class Store:
    """One job's. Blocking; for several threads at once. All raise StoreError."""

    def __init__(
        self,
        blobs: Blobs,
        namespace: str,
        job_uid: str,
        *,
        conditional: bool = True,
        grace_seconds: float = GRACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] | None = None,
        packer: Packer | None = None,
    ) -> None:
        """`conditional`: whether of several `Blobs.create` one wins, as `probe` finds out. Where not, it is
        read, and nothing is committed.

        `report`: hears of what is malformed. `packer`: without one chunks are put as they are.
        """
        self._blobs = blobs
        self._home = f"{_plain(namespace)}/{_plain(job_uid)}"
        self._conditional = conditional
        self._grace = grace_seconds
        self._clock = clock
        self._packer = packer
        self._report = report or (lambda what: log.warning("malformed object in the store", what=what))

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"{self._blobs.where}: {self._home}"

    # Uploading and restoring.

    def put_chunk(
        self, chunk: Chunk, data: digest.Buffer, pace: Callable[[int], None] = lambda _: None
    ) -> int:
        """The bytes that were sent. Idempotent. Damaged, and nothing is sent, when they are not the chunk's.

        `pace`: waits until so many bytes may be sent.
        """
        _check(chunk, data)
        key = self._key("chunks", chunk.digest)
        body = data if self._packer is None else self._packer.pack(data)
        began = time.monotonic()
        pace(len(body))
        self._blobs.put(key, body)
        if self._packer is not None:
            self._packer.sent(len(data), len(body), time.monotonic() - began)
        return len(body)

    def get_chunk(self, chunk: Chunk) -> bytes:
        """Damaged when it is not there or not as it was."""
        # One more than it may have: what is longer is seen.
        data = self._blobs.get(self._key("chunks", chunk.digest), limit=chunk.length + 1)
        if data is None:
            raise Damaged(f"chunk {chunk.digest} is not in {self.where}")
        try:
            whole = bytes(planes.unpack(data, chunk.length))
        except Damaged as error:
            raise Damaged(f"chunk {chunk.digest} is damaged: {error}") from error
        _check(chunk, whole)
        return whole

    def chunks(self) -> Mapping[str, float]:
        """When each was last written or promised, in Unix seconds, by digest."""
        return self._names("chunks").written

    def kept(self, folder: str) -> Listing:
        """What lies in one of FOLDERS, by digest, id or name."""
        return self._names(folder)

    def promised(self) -> Mapping[str, bool]:
        """The chunks that are there, and whether one may be used again as it is, without a touch."""
        found = self._names("chunks")
        return {name: self._young(found.now, at) for name, at in found.written.items()}

    def touch(self, digests: Iterable[str]) -> set[str]:
        """Promises chunks anew; those that have to be sent, since they went or the store cannot."""
        wanted = list(digests)
        done = self._many(lambda name: self._blobs.touch(self._key("chunks", name)), wanted)
        return {name for name, there in zip(wanted, done, strict=True) if not there}

    def put_manifest(self, manifest: Manifest) -> None:
        """Its chunks have all been put. Idempotent."""
        self._blobs.put(self._key("manifests", manifest.id), manifest.text)

    # What is known.

    def put_branch(self, branch: Branch) -> bool:
        """Where an incarnation began. False when it was decided otherwise before, and that stands.

        Undecided and decided ones have names of their own, so that a late undecided one replaces nothing.
        """
        key = self._key("branches", str(branch.incarnation))
        text = records.seal(branch.text)
        if branch.decided:
            if not self._once(key, text):
                return False
            self._blobs.remove(key + _LOOKING)
            return True
        if self._blobs.get(key) is not None:
            return False
        self._blobs.put(key + _LOOKING, text)
        return True

    def commit(self, record: Record) -> bool:
        """The generation is whole here. False when another record of it stands.

        True also when this very record is there already: an answer may have been lost. Missing, and nothing
        is written, when something it stands on is not there.
        """
        key = self._key("records", record.generation.name)
        text = records.seal(record.text)
        standing = self._blobs.get(key)
        if standing is None:
            self._secure(record)
        elif standing != text:
            return False
        elif self._blobs.create(key, text):
            # A sweep has deleted it since, and perhaps what it stands on.
            self._blobs.remove(key)
            raise StoreError(f"{self.where}: {key} was there, and is gone; try again", retriable=True)
        # Also one that stands: who wrote it may have died before it was durable.
        return self._once(key, text)

    def inventory(self) -> Inventory:
        """What is here. What is malformed is reported and passed over."""
        found: dict[Generation, Record] = {}
        for name, record in self._read("records", lambda text: records.record(records.unseal(text))):
            if self._fits("records", name, record.generation.name):
                found[record.generation] = record
        branches: dict[int, Branch] = {}
        said = self._read("branches", lambda text: records.branch(records.unseal(text)))
        # A decided one comes last, and stays.
        for name, branch in sorted(said, key=lambda one: one[1].decided):
            if self._fits("branches", name, f"{branch.incarnation}{'' if branch.decided else _LOOKING}"):
                branches[branch.incarnation] = branch
        manifests = {
            name: manifest
            for name, manifest in self._read("manifests", records.manifest)
            if self._fits("manifests", name, manifest.id)
        }
        return Inventory(found, branches, manifests)

    # Deleting.

    def sweep(self, keep: Keep, pinned: Collection[Generation] = ()) -> Doomed:
        """Deletes what the store need not keep; what that was."""
        stored = self.inventory()
        chunks = self._names("chunks")
        return self.delete(retention.sweep(stored, chunks.written, keep, chunks.now, self._grace, pinned))

    def delete(self, doomed: Doomed) -> Doomed:
        """Deletes these, but nothing that is in use or was written within the grace; what went.

        Breaks off after SWEEP_SECONDS each of manifests and chunks: the next sweep finds the rest.
        """
        self._remove("records", (one.name for one in doomed.records))
        self._remove("branches", (f"{one}{end}" for one in doomed.branches for end in (_LOOKING, "")))
        self._tidy()
        if not doomed.chunks and not self._aged("manifests", doomed.manifests)[0]:
            return Doomed(doomed.records, doomed.branches)
        with self._sweeping() as said:
            left = self.inventory()
            heads = {head for one in left.records.values() for head in one.shards.values()}
            alive = retention.reachable(heads, left.manifests)
            manifests = self._expire("manifests", doomed.manifests - alive, said)
            used = _digests(one for key, one in left.manifests.items() if key not in manifests)
            # A manifest that is in use but cannot be read may be put again: its chunks stay till then.
            lost = alive - left.manifests.keys()
            chunks = frozenset() if lost else self._expire("chunks", doomed.chunks - used, said)
        return Doomed(doomed.records, doomed.branches, manifests, chunks)

    def erase(self) -> int:
        """Deletes all there is of the job, however young; how many objects. For a job that is over: an upload
        that is under way may bring some of it back. Again after an error, until nothing is left.
        """
        done = 0
        for folder in FOLDERS:
            found = self._names(folder)
            self._remove(folder, sorted(found.written))
            self._blobs.tidy(f"{self._home}/{folder}", math.inf)
            done += len(found.written) + len(found.unfinished)
        return done

    # Inside.

    def _key(self, folder: str, name: str) -> str:
        return f"{self._home}/{folder}/{name}"

    def _names(self, folder: str) -> Listing:
        found = self._blobs.names(f"{self._home}/{folder}")
        own = FOLDERS[folder].fullmatch
        written = {name: at for name, at in found.written.items() if own(name)}
        sizes = {name: size for name, size in found.sizes.items() if own(name)}
        return found._replace(written=written, sizes=sizes)

    def _young(self, now: float, written: float) -> bool:
        return now - written < self._grace / 2

    def _once(self, key: str, text: bytes) -> bool:
        """Whether this is what stands there for good."""
        if not self._conditional:
            raise StoreError(
                f"{self.where}: it does not honour conditional writes, or has not been tried yet: nothing is "
                "committed there",
                retriable=False,
            )
        if self._blobs.create(key, text):
            return True
        standing = self._blobs.get(key)
        if standing is None:
            raise StoreError(f"{self.where}: {key} was there, and is gone; try again", retriable=True)
        return standing == text

    def _secure(self, record: Record) -> None:
        """Everything the record stands on is there, and is not deleted before the record can be."""
        for _ in range(_ROUNDS):
            began = self._clock()
            self._see_no_sweep()
            below, unknown = self._below(record)
            digests = _digests(below.values())
            now, manifests, *_ = self._names("manifests")
            chunks = self._names("chunks").written
            unknown |= below.keys() - manifests.keys()
            if unknown or not digests <= chunks.keys():
                raise Missing(self.where, frozenset(unknown), frozenset(digests - chunks.keys()))
            old_manifests = [one for key, one in below.items() if not self._young(now, manifests[key])]
            old_chunks = [name for name in digests if not self._young(now, chunks[name])]
            if not old_manifests and not old_chunks:
                if self._clock() - began > self._grace / 4:
                    continue
                return
            self._many(self.put_manifest, old_manifests)
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
            for key, one in zip(keys, self._many(self.manifest, keys), strict=True):
                if one is None:
                    unknown.add(key)
                else:
                    found[key] = one
            waiting = {one.extends for one in found.values() if one.extends} - found.keys() - unknown
        return found, unknown

    def manifest(self, key: str) -> Manifest | None:
        """The manifest of that id; None when it is not there, or not as it was written."""
        if not FOLDERS["manifests"].fullmatch(key):
            return None
        text = self._blobs.get(self._key("manifests", key))
        one = None if text is None else self._parsed(self._key("manifests", key), text, records.manifest)
        return one if one is not None and one.id == key else None

    def _read(self, folder: str, parse: Callable[[bytes], T]) -> Iterator[tuple[str, T]]:
        found = self._blobs.names(f"{self._home}/{folder}")
        own = FOLDERS[folder].fullmatch
        for name in sorted(name for name in found.written if not own(name)):
            self._report(f"{self._blobs.where}: {self._key(folder, name)}: no such name belongs there")

        def read(name: str) -> T | None:
            key = self._key(folder, name)
            if found.sizes.get(name, 0) > MAX_TEXT:
                self._report(f"{self._blobs.where}: {key}: it has more than {MAX_TEXT} bytes")
                return None
            text = self._blobs.get(key)
            return None if text is None else self._parsed(key, text, parse)

        names = sorted(filter(own, found.written))
        # Parsed one by one: their texts are not all held at once.
        for name, one in zip(names, self._many(read, names), strict=True):
            if one is not None:
                yield name, one

    def _parsed(self, key: str, text: bytes, parse: Callable[[bytes], T]) -> T | None:
        try:
            return parse(text)
        except (MalformedError, RecursionError) as error:
            self._report(f"{self._blobs.where}: {key}: {error}")
            return None

    def _fits(self, folder: str, name: str, says: str) -> bool:
        if name != says:
            self._report(f"{self._blobs.where}: {self._key(folder, name)} holds {says}")
        return name == says

    def _see_no_sweep(self) -> None:
        now, sweeps, *_ = self._names("sweeps")
        if any(now - at < WORD_SECONDS for at in sweeps.values()):
            raise StoreError(f"{self.where}: commit: what is obsolete is just being deleted", retriable=True)

    @contextlib.contextmanager
    def _sweeping(self) -> Iterator[Callable[[], float]]:
        """Says so meanwhile; after an error too, until that lapses: what failed may still be under way. Gives
        what says it again, and until when that allows to delete: listings of many names take long.
        """
        name, last = secrets.token_hex(8), self._clock()
        self._blobs.put(self._key("sweeps", name), b"")

        def again() -> float:
            nonlocal last
            now = self._clock()
            if now - last > WORD_SECONDS / 2:
                raise StoreError(
                    f"{self.where}: sweep: looking through the store takes {now - last:.0f} s, too long for "
                    "anything to be deleted",
                    retriable=True,
                )
            self._blobs.put(self._key("sweeps", name), b"")
            last = now
            return now + SWEEP_SECONDS

        yield again
        self._remove("sweeps", [name])

    def _tidy(self) -> None:
        """Clears up after what has broken off."""
        now, sweeps, *_ = self._names("sweeps")
        self._remove("sweeps", [one for one, at in sweeps.items() if now - at > 2 * WORD_SECONDS])
        for folder in FOLDERS:
            self._blobs.tidy(f"{self._home}/{folder}", now - self._grace)

    def _aged(self, folder: str, names: Collection[str]) -> tuple[list[str], set[str]]:
        """Those of them that were not written within the grace, and those that are not there any more."""
        if not names:
            return [], set()
        now, written, *_ = self._names(folder)
        old = [name for name in names if name in written and now - written[name] > self._grace]
        return old, set(names) - written.keys()

    def _expire(self, folder: str, names: Collection[str], said: Callable[[], float]) -> frozenset[str]:
        """Those of them that are not there any more. `said`: as `_sweeping` gives it."""
        old, gone = self._aged(folder, names)
        if not old:
            return frozenset(gone)
        until = said()

        def remove(name: str) -> bool:
            if self._clock() >= until:
                return False
            self._blobs.remove(self._key(folder, name))
            return True

        gone.update(name for name, done in zip(old, self._many(remove, old), strict=True) if done)
        return frozenset(gone)

    def _remove(self, folder: str, names: Iterable[str]) -> None:
        self._many(lambda name: self._blobs.remove(self._key(folder, name)), list(names))

    def _many(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if len(items) < 2:
            return [work(one) for one in items]
        with ThreadPoolExecutor(min(_THREADS, len(items)), "store") as pool:
            return list(pool.map(work, items))


def _check(chunk: Chunk, data: digest.Buffer) -> None:
    if len(data) != chunk.length or digest.digest(data) != chunk.digest:
        raise Damaged(f"chunk {chunk.digest} is damaged")


def _digests(manifests: Iterable[Manifest]) -> set[str]:
    return {chunk.digest for one in manifests for chunk in one.chunks}


def _plain(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a namespace or job")
    return name
