"""What is written down of a generation: manifests of its shards, the COMMIT record, and where a branch began.

A shard is one rank's share. Its manifest lists the chunks of its bytes by digest, so equal chunks are kept,
sent and uploaded once. A base stands alone; a journal segment extends the manifest of the same shard in the
generation before. The record names each shard's manifest by the SHA-256 of its text: whoever holds a record
can check everything below it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from convoy_controllers.checkpoint.generation import Generation

MAX_HISTORY = 256
"""Earlier incarnations that a branch tells of."""
MAX_CHUNK = 4 * 1024 * 1024
"""Bytes of a chunk; the last of a shard may be shorter."""
ENCODED_MOST = 0.97
"""Of a chunk's length that an encoded one may have: a smaller gain is not worth the time to decode it."""
ENCODED_LEAST = 20
"""Bytes that an encoded one has at least."""
_DIGEST_BYTES = 16


class MalformedError(ValueError):
    """Text that is no manifest, record or branch; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some bytes, named by content."""

    digest: str
    """XXH3-128 of the bytes as they are kept, 32 hex digits."""
    length: int
    """Bytes as they are kept."""

    def fits(self, size: int) -> bool:
        """Whether so many bytes may be the chunk as it lies in a store: as it is, or encoded."""
        return size == self.length or ENCODED_LEAST <= size <= ENCODED_MOST * self.length


@dataclass(frozen=True)
class Manifest:
    """One shard of one generation."""

    generation: Generation
    shard: str
    """Name among the generation's shards; no rank and no node: both may change before it is read."""
    chunks: tuple[Chunk, ...]
    length: int
    """Bytes of the shard."""
    extends: str | None = None
    """Of a journal segment: id of the manifest it is applied onto. None for a base."""

    @property
    def size(self) -> int:
        """Bytes of its chunks."""
        return sum(chunk.length for chunk in self.chunks)

    @property
    def text(self) -> bytes:
        """The form that is stored and sent; equal manifests have equal texts."""
        return _text(
            {
                "chunks": [[chunk.digest, chunk.length] for chunk in self.chunks],
                "extends": self.extends,
                "generation": _pair(self.generation),
                "length": self.length,
                "shard": self.shard,
            }
        )

    @cached_property
    def id(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """A COMMIT: every shard was sealed, and whole in some node's memory, when it was written."""

    generation: Generation
    parent: Generation | None
    """What its incarnation committed before, or was restored from."""
    shards: Mapping[str, str]
    """Id of each shard's manifest, by the shard's name."""
    world: int = 1
    """Ranks that saved it."""
    torch: str = ""
    """Version of torch that saved it."""
    saved: float = 0.0
    """Unix seconds."""
    remote: bool = False
    """Whether it is to go to the remote store as well."""

    @property
    def text(self) -> bytes:
        """The form that is stored and sent."""
        return _text(
            {
                "generation": _pair(self.generation),
                "parent": _pair(self.parent),
                "remote": self.remote,
                "saved": self.saved,
                "shards": dict(self.shards),
                "torch": self.torch,
                "world": self.world,
            }
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """Where an incarnation began, known before its first step.

    An incarnation that ends before its first commit leaves no record, but it too has gone on from somewhere.
    Without this a late commit of the one before it would look like the newest state of the run.
    """

    incarnation: int
    parent: Generation | None = None
    """What it was restored from; None for a fresh start."""
    decided: bool = True
    """False while the incarnation still looks: already then nobody older may commit."""
    history: tuple[tuple[int, Generation | None], ...] = ()
    """Where the incarnations before it began, newest first, as far as it knows: their own words may go with
    the memory that holds them."""

    @property
    def text(self) -> bytes:
        """The form that is stored and sent."""
        return _text(
            {
                "decided": self.decided,
                "history": [[number, _pair(parent)] for number, parent in self.history],
                "incarnation": self.incarnation,
                "parent": _pair(self.parent),
            }
        )


@dataclass(frozen=True, slots=True)
class Inventory:
    """What somebody knows and holds of one job."""

    records: Mapping[Generation, Record] = field(default_factory=dict)
    branches: Mapping[int, Branch] = field(default_factory=dict)
    manifests: Mapping[str, Manifest] = field(default_factory=dict)
    """By id; all of their chunks are there, as far as the holder knows."""


def manifest(text: bytes) -> Manifest:
    """Reads `Manifest.text`; MalformedError for anything else."""
    data = _read(text, "manifest")
    try:
        chunks = tuple(Chunk(_digest(digest), _count(length)) for digest, length in data["chunks"])
        extends = data["extends"]
        found = Manifest(
            generation=_required(data["generation"]),
            shard=str(data["shard"]),
            chunks=chunks,
            length=_count(data["length"]),
            extends=None if extends is None else str(extends),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedError(f"manifest: {type(error).__name__}: {error}") from error
    if not chunks or not all(0 < chunk.length <= 2 * MAX_CHUNK for chunk in chunks):
        raise MalformedError(f"manifest: it needs chunks, each of 1 to {2 * MAX_CHUNK} bytes")
    if found.text != text:
        # JSON has several ways to write the same, and the id is of one of them.
        raise MalformedError("manifest: its text is not the one that its id is of")
    return found


def record(text: bytes) -> Record:
    """Reads `Record.text`; MalformedError for anything else."""
    data = _read(text, "record")
    try:
        return Record(
            generation=_required(data["generation"]),
            parent=_generation(data["parent"]),
            shards={str(name): str(one) for name, one in data["shards"].items()},
            world=_count(data["world"]),
            torch=str(data["torch"]),
            saved=float(data["saved"]),
            remote=bool(data["remote"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedError(f"record: {type(error).__name__}: {error}") from error


def branch(text: bytes) -> Branch:
    """Reads `Branch.text`; MalformedError for anything else."""
    data = _read(text, "branch")
    try:
        return Branch(
            _count(data["incarnation"]),
            _generation(data["parent"]),
            bool(data["decided"]),
            tuple((_count(number), _generation(parent)) for number, parent in data["history"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedError(f"branch: {type(error).__name__}: {error}") from error


def seal(text: bytes) -> bytes:
    """A text with the SHA-256 of itself: a flipped bit in a parent or a world size is seen."""
    return text + b"\n" + hashlib.sha256(text).hexdigest().encode() + b"\n"


def unseal(data: bytes) -> bytes:
    """Reads what `seal` gave; MalformedError for anything else."""
    text = data[: -len(seal(b""))]
    if seal(text) != data:
        raise MalformedError("it is not as it was written")
    return text


def by_number(shard: str) -> tuple[int, str]:
    """Sorts the names of shards by the ranks that have saved them."""
    return (int(shard), shard) if shard.isdigit() else (1 << 30, shard)


def merge(inventories: Collection[Inventory]) -> Inventory:
    """What all of them know together. A decided branch replaces one that was still looking."""
    branches: dict[int, Branch] = {}
    for one in inventories:
        for number, found in one.branches.items():
            known = branches.get(number)
            if known is None or (found.decided and not known.decided):
                branches[number] = found
    return Inventory(
        {key: value for one in inventories for key, value in one.records.items()},
        branches,
        {key: value for one in inventories for key, value in one.manifests.items()},
    )


def _text(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), sort_keys=True).encode()


def _read(text: bytes, what: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise MalformedError(f"{what}: {error}") from error
    if not isinstance(data, dict):
        raise MalformedError(f"{what}: not an object")
    return data


def _pair(generation: Generation | None) -> list[int] | None:
    return None if generation is None else [generation.incarnation, generation.step]


def _generation(pair: Any) -> Generation | None:
    return None if pair is None else _required(pair)


def _required(pair: Any) -> Generation:
    incarnation, step = pair
    return Generation(_count(incarnation), _count(step))


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _digest(value: Any) -> str:
    if not isinstance(value, str) or len(bytes.fromhex(value)) != _DIGEST_BYTES:
        raise ValueError(f"{value!r} is no digest")
    return value
