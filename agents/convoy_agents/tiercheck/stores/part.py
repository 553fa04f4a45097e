"""One job's part of a store: where what lies, and reading it.

    chunks/<digest>                 bytes, perhaps encoded (planes.py); the digest is that of the chunk itself
    manifests/<id>                  of a shard; written after its chunks
    records/<generation>            COMMIT; written once, after all it stands on
    branches/<number>               where an incarnation started; `<number>.undecided` while that is undecided
    sweeps/<random>                 somebody is deleting

A chunk that is encoded is shorter than the chunk, and begins with a head of its own. Who puts one that is
there in the other form changes nothing: either is replaced as a whole, and gives the same bytes.

Records and branches end with the SHA-256 of their text; a manifest's is its name. Nothing else is kept: what
there is follows from listings.

A chunk that an upload finds here is used again, so it must not be deleted under that upload. Two things see
to it. What was written within the grace is never deleted, and whoever uses what is old writes it anew
(`touch`). And who deletes first name_inside so in `sweeps/` and then looks at the times; who commits first makes
everything young, then sees that no sweep is on, then looks whether everything is there. Whichever of the two
comes first, the other one sees it.
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
"""Ends the name of a branch that is not decided."""
FOLDERS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "records": re.compile(r"gen-[0-9]{1,18}-[0-9]{1,18}"),
        "branches": re.compile(rf"[0-9]{{1,18}}({re.escape(UNDECIDED)})?"),
        "manifests": re.compile(r"[0-9a-f]{64}"),
        "chunks": re.compile(r"[0-9a-f]{32}"),
        "deletions": re.compile(r"[0-9a-f]{16}"),
    }
)
"""Of a job, in the order in which they are deleted: nothing half deleted looks whole. What is in them has
such names; anything else is somebody else's, and is left alone."""
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""Of a namespace, or the uid of a job."""


log = structlog.get_logger()


class Part:
    """Blocking; for several threads at once. All raise StoreError."""

    def __init__(
        self, blobs: Blobs, namespace: str, job_uid: str, report: Callable[[str], None] | None = None
    ) -> None:
        """`report`: hears of what is malformed."""
        self.blobs = blobs
        self._folder = f"{_plain(namespace)}/{_plain(job_uid)}"
        self._report = report or (lambda what: log.warning("malformed object in the store", what=what))

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"{self.blobs.where}: {self._folder}"

    def key(self, folder: str, name: str) -> str:
        """Of something in one of FOLDERS."""
        return f"{self._folder}/{folder}/{name}"

    def names(self, folder: str, wanted: Container[str] | None = None) -> Listing:
        """What lies in one of FOLDERS, or what of it is wanted, by digest, id or name."""
        found = self.blobs.names(f"{self._folder}/{folder}", wanted=wanted)
        own = FOLDERS[folder].fullmatch
        written = {name: at for name, at in found.written.items() if own(name)}
        sizes = {name: size for name, size in found.sizes.items() if own(name)}
        return found._replace(written=written, sizes=sizes)

    def manifest(self, key: str) -> Manifest | None:
        """The manifest of that id; None when it is not there, or not as it was written."""
        if not FOLDERS["manifests"].fullmatch(key):
            return None
        text = self.blobs.get(self.key("manifests", key))
        one = None if text is None else self._parsed(self.key("manifests", key), text, records.manifest)
        return one if one is not None and one.id == key else None

    def inventory(self) -> Inventory:
        """What is here. What is malformed is reported and passed over."""
        found: dict[Generation, Record] = {}
        for name, record in self._read("records", lambda text: records.record(records.unseal(text))):
            if self._fits("records", name, record.generation.name):
                found[record.generation] = record
        branches: dict[int, Branch] = {}
        branches_found = self._read("branches", lambda text: records.branch(records.unseal(text)))
        # A decided one comes last, and stays.
        for name, branch in sorted(branches_found, key=lambda one: one[1].decided):
            if self._fits("branches", name, f"{branch.incarnation}{'' if branch.decided else UNDECIDED}"):
                branches[branch.incarnation] = branch
        manifests = {
            name: manifest
            for name, manifest in self._read("manifests", records.manifest)
            if self._fits("manifests", name, manifest.id)
        }
        return Inventory(found, branches, manifests)

    def remove(self, folder: str, names: Iterable[str]) -> None:
        """They are not there any more."""
        self.many(lambda name: self.blobs.remove(self.key(folder, name)), list(names))

    def tidy(self, folder: str, before: float) -> None:
        """Clears up in one of FOLDERS what was begun before then and broke off."""
        self.blobs.tidy(f"{self._folder}/{folder}", before)

    def many(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Several at once."""
        if len(items) < 2:
            return [work(one) for one in items]
        with ThreadPoolExecutor(min(_THREADS, len(items)), "store") as pool:
            return list(pool.map(work, items))

    def _read(self, folder: str, parse: Callable[[bytes], T]) -> Iterator[tuple[str, T]]:
        found = self.blobs.names(f"{self._folder}/{folder}")
        own = FOLDERS[folder].fullmatch
        for name in sorted(name for name in found.written if not own(name)):
            self._report(f"{self.blobs.where}: {self.key(folder, name)}: no such name belongs there")

        def read(name: str) -> T | None:
            key = self.key(folder, name)
            if found.sizes.get(name, 0) > MAX_TEXT:
                self._report(f"{self.blobs.where}: {key}: it has more than {MAX_TEXT} bytes")
                return None
            text = self.blobs.get(key)
            return None if text is None else self._parsed(key, text, parse)

        names = sorted(filter(own, found.written))
        # Parsed one by one: their texts are not all held at once.
        for name, one in zip(names, self.many(read, names), strict=True):
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
        raise ValueError(f"{name!r} is no name of a namespace or job")
    return name
