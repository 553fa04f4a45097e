"""One job's part of a store: its layout, and functions that read it.

    chunks/<digest>                 bytes, plain or encoded (planes.py); the digest is that of the plain chunk
    manifests/<id>                  the manifest of a shard; written after its chunks
    records/<generation>            the commit record; written once, after everything that it needs
    branches/<number>               start generation of an incarnation; `<number>.undecided` until decided
    traces/trace-<number>.<rank>.et Chakra trace of a rank; no generation needs it
    deletions/<random>              the marker of a running garbage collection

An encoded chunk is shorter than the plain chunk and has its own header. A writer may replace one form by
the other, since the whole blob is replaced and decodes to the same bytes.

Records and branches end with the SHA-256 of their text. The name of a manifest is its SHA-256. There is no
index: all state is read from listings.

An upload reuses chunks that exist already, so garbage collection must not delete these. Two rules ensure
this:

1. Nothing is deleted within the grace period after its last write. An upload that reuses an old chunk sets
   the chunk's write time to now (`touch`).
2. The garbage collector writes its marker to `deletions/` before it reads the write times. A commit first
   touches everything that it needs, then checks that there is no marker, then checks that everything exists.
   If the marker was written before this check, the commit fails. If not, the collector reads the new write
   times and keeps the objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TypeVar

import structlog

from convoy_agents.tiercheck.stores.blobs import MAX_TEXT, Blobs, Listing
from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Branch, Inventory, MalformedError, Manifest, Record

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 8
UNDECIDED = ".undecided"
"""Suffix in the name of an undecided branch."""
FOLDERS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "records": re.compile(r"gen-[0-9]{1,18}-[0-9]{1,18}"),
        "branches": re.compile(rf"[0-9]{{1,18}}({re.escape(UNDECIDED)})?"),
        "manifests": re.compile(r"[0-9a-f]{64}"),
        "chunks": re.compile(r"[0-9a-f]{32}"),
        "traces": re.compile(r"trace-[0-9]{1,18}\.[0-9]{1,7}\.et"),
        "deletions": re.compile(r"[0-9a-f]{16}"),
    }
)
"""The folders of a job, each with a pattern of the names in it. Objects with other names belong to other
programs and are never deleted.

Objects are deleted in this order, so that a half-deleted generation never looks complete.
"""
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""Pattern that the name of a namespace and the uid of a job must match."""


log = structlog.get_logger()


class Part:
    """One job's part of a store. All methods block, raise StoreError and are thread-safe."""

    def __init__(
        self, blobs: Blobs, namespace: str, job_uid: str, report: Callable[[str], None] | None = None
    ) -> None:
        """`report`: called with a message for each malformed object; None to log the message."""
        self.blobs = blobs
        self._folder = f"{_plain(namespace)}/{_plain(job_uid)}"
        self._report = report or (lambda what: log.warning("malformed object in the store", what=what))

    @property
    def where(self) -> str:
        """The location of the job's part, for messages."""
        return f"{self.blobs.where}: {self._folder}"

    def key(self, folder: str, name: str) -> str:
        """Return the key of an object in one of FOLDERS."""
        return f"{self._folder}/{folder}/{name}"

    def names(self, folder: str, wanted: Container[str] | None = None) -> Listing:
        """List the objects in one of FOLDERS. `wanted`: list only these names."""
        found = self.blobs.names(f"{self._folder}/{folder}", wanted=wanted)
        own = FOLDERS[folder].fullmatch
        written = {name: at for name, at in found.written.items() if own(name)}
        sizes = {name: size for name, size in found.sizes.items() if own(name)}
        return found._replace(written=written, sizes=sizes)

    def manifest(self, key: str) -> Manifest | None:
        """Return the manifest with this id; None if it does not exist or is damaged."""
        if not FOLDERS["manifests"].fullmatch(key):
            return None
        text = self.blobs.get(self.key("manifests", key))
        one = None if text is None else self._parsed(self.key("manifests", key), text, records.parse_manifest)
        return one if one is not None and one.id == key else None

    def inventory(self) -> Inventory:
        """Return all records, branches and manifests. Malformed objects are reported and left out."""
        found: dict[Generation, Record] = {}
        for name, record in self._read("records", lambda text: records.parse_record(records.unseal(text))):
            if self._fits("records", name, record.generation.name):
                found[record.generation] = record
        branches: dict[int, Branch] = {}
        branches_found = self._read("branches", lambda text: records.parse_branch(records.unseal(text)))
        # Decided branches sort after undecided ones, so a decided branch replaces the undecided one of its
        # incarnation.
        for name, branch in sorted(branches_found, key=lambda one: one[1].decided):
            if self._fits("branches", name, f"{branch.incarnation}{'' if branch.decided else UNDECIDED}"):
                branches[branch.incarnation] = branch
        manifests = {
            name: manifest
            for name, manifest in self._read("manifests", records.parse_manifest)
            if self._fits("manifests", name, manifest.id)
        }
        return Inventory(found, branches, manifests)

    def remove(self, folder: str, names: Iterable[str]) -> None:
        """Remove objects from one of FOLDERS."""
        self.run_parallel(lambda name: self.blobs.remove(self.key(folder, name)), list(names))

    def tidy(self, folder: str, before: float) -> None:
        """Remove unfinished objects in one of FOLDERS that were last written before `before`, a Unix time
        in seconds.
        """
        self.blobs.tidy(f"{self._folder}/{folder}", before)

    def run_parallel(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call `work` for each item in parallel threads. Return the results in the order of the items."""
        if len(items) < 2:
            return [work(one) for one in items]
        with ThreadPoolExecutor(min(_THREADS, len(items)), "store") as pool:
            return list(pool.map(work, items))

    def _read(self, folder: str, parse: Callable[[bytes], T]) -> Iterator[tuple[str, T]]:
        found = self.blobs.names(f"{self._folder}/{folder}")
        own = FOLDERS[folder].fullmatch
        for name in sorted(name for name in found.written if not own(name)):
            self._report(f"{self.blobs.where}: {self.key(folder, name)}: the name does not belong there")

        def read(name: str) -> T | None:
            key = self.key(folder, name)
            if found.sizes.get(name, 0) > MAX_TEXT:
                self._report(f"{self.blobs.where}: {key}: it is longer than {MAX_TEXT} bytes")
                return None
            text = self.blobs.get(key)
            return None if text is None else self._parsed(key, text, parse)

        names = sorted(filter(own, found.written))
        # Parse each text in the thread that reads it, so that not all texts are in memory at once.
        for name, one in zip(names, self.run_parallel(read, names), strict=True):
            if one is not None:
                yield name, one

    def _parsed(self, key: str, text: bytes, parse: Callable[[bytes], T]) -> T | None:
        try:
            return parse(text)
        except (MalformedError, RecursionError) as error:
            self._report(f"{self.blobs.where}: {key}: {error}")
            return None

    def _fits(self, folder: str, name: str, name_inside: str) -> bool:
        if name != name_inside:
            self._report(f"{self.blobs.where}: {self.key(folder, name)} holds {name_inside}")
        return name == name_inside


def _plain(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a namespace or uid of a job")
    return name
