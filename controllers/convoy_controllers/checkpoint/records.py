"""Metadata of generations: manifests of shards, the COMMIT record, and branches.

A shard is one rank's part of the state. Its manifest lists the chunks of its bytes by digest, so that equal
chunks are kept, sent and uploaded only once. A shard's manifest is either a base, which is complete in
itself, or a journal segment, which extends the manifest of the same shard in the previous generation. The
record names each manifest by the SHA-256 of the manifest's text. The record is therefore enough to check
all manifests and chunks of the generation.
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
"""Maximum number of earlier incarnations in the history of a branch."""
MAX_CHUNK = 4 * 1024 * 1024
"""Length of a chunk in bytes. The last chunk of a shard may be shorter."""
MAX_ENCODED_RATIO = 0.97
"""Maximum length of an encoded chunk, relative to the raw chunk's length. A smaller gain is not worth the
time to decode the chunk.
"""
MIN_ENCODED_BYTES = 20
"""Minimum length of an encoded chunk, in bytes."""
_DIGEST_BYTES = 16


class MalformedError(ValueError):
    """Raised for text that is not a valid manifest, record or branch. The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of bytes, named by the digest of its content."""

    digest: str
    """XXH3-128 of the chunk's bytes before encoding, as 32 hex digits."""
    length: int
    """Number of bytes of the chunk before encoding."""

    def fits(self, size: int) -> bool:
        """Return True if a stored object of `size` bytes may be this chunk, raw or encoded."""
        return size == self.length or MIN_ENCODED_BYTES <= size <= MAX_ENCODED_RATIO * self.length


@dataclass(frozen=True)
class Manifest:
    """The manifest of one shard of one generation."""

    generation: Generation
    shard: str
    """Name of the shard within its generation. The name contains no rank and no node, because both may
    change before the shard is read.
    """
    chunks: tuple[Chunk, ...]
    length: int
    """Length of the shard in bytes."""
    extends: str | None = None
    """Id of the manifest that this journal segment extends; None for a base."""

    @property
    def size(self) -> int:
        """Return the number of bytes in all chunks."""
        return sum(chunk.length for chunk in self.chunks)

    @property
    def text(self) -> bytes:
        """Return the manifest as the text that is stored and sent. Equal manifests have equal texts."""
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
        """Return the manifest's id: the SHA-256 of its text, in hex."""
        return hashlib.sha256(self.text).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """A COMMIT record. When it was written, each shard of the generation was complete in the memory of some
    node.
    """

    generation: Generation
    parent: Generation | None
    """The previous committed generation of the same incarnation; for its first one, the restored
    generation. None after a fresh start.
    """
    shards: Mapping[str, str]
    """Ids of the shards' manifests, by name of the shard."""
    world: int = 1
    """Number of ranks that saved the generation."""
    torch: str = ""
    """Version of torch that saved the generation."""
    saved: float = 0.0
    """Unix seconds at which the generation was saved."""
    remote: bool = False
    """True if the generation must also go to the remote store."""

    @property
    def text(self) -> bytes:
        """Return the record as the text that is stored and sent."""
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
    """The generation from which an incarnation started. It is known before the incarnation's first step.

    An incarnation that ends before its first commit leaves no record. Only its branch shows that it
    started. Without the branch, a late commit of the previous incarnation would look like the newest state
    of the run.
    """

    incarnation: int
    parent: Generation | None = None
    """The generation that the incarnation restored; None for a fresh start."""
    decided: bool = True
    """False while the incarnation still searches for a generation to restore. Even then no earlier
    incarnation may commit.
    """
    history: tuple[tuple[int, Generation | None], ...] = ()
    """Pairs of an earlier incarnation and the generation from which it started, newest first. They are
    repeated here because an earlier branch may be lost with the memory that holds it.
    """

    @property
    def text(self) -> bytes:
        """Return the branch as the text that is stored and sent."""
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
    """The metadata of one job at one place: in the memory of one node, or in a remote store."""

    records: Mapping[Generation, Record] = field(default_factory=dict)
    branches: Mapping[int, Branch] = field(default_factory=dict)
    manifests: Mapping[str, Manifest] = field(default_factory=dict)
    """Manifests by id. The place has all chunks of each manifest, unless it lost one without notice."""


def parse_manifest(text: bytes) -> Manifest:
    """Return the manifest with this text. Raises MalformedError if the text is not a manifest in canonical
    form.
    """
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
        raise MalformedError(f"manifest: {_flaw(error)}") from error
    if not chunks or not all(0 < chunk.length <= 2 * MAX_CHUNK for chunk in chunks):
        raise MalformedError(f"manifest: no chunks, or one that is not 1 to {2 * MAX_CHUNK} bytes long")
    if found.text != text:
        # Several texts describe the same JSON object, but the manifest's id is the digest of only one of
        # them.
        raise MalformedError("manifest: its text is not in canonical form")
    return found


def parse_record(text: bytes) -> Record:
    """Return the record with this text. Raises MalformedError if the text is not a record."""
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
        raise MalformedError(f"record: {_flaw(error)}") from error


def parse_branch(text: bytes) -> Branch:
    """Return the branch with this text. Raises MalformedError if the text is not a branch."""
    data = _read(text, "branch")
    try:
        return Branch(
            _count(data["incarnation"]),
            _generation(data["parent"]),
            bool(data["decided"]),
            tuple((_count(number), _generation(parent)) for number, parent in data["history"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedError(f"branch: {_flaw(error)}") from error


def _flaw(error: Exception) -> str:
    """Return the flaw of a text that could not be parsed."""
    if isinstance(error, KeyError):
        return f"the field {error.args[0]} is missing"
    return f"a field has a wrong type or value ({error})"


def seal(text: bytes) -> bytes:
    """Return the text with its SHA-256 appended, so that a reader detects a flipped bit."""
    return text + b"\n" + hashlib.sha256(text).hexdigest().encode() + b"\n"


def unseal(data: bytes) -> bytes:
    """Return the text without the SHA-256 that `seal` appended. Raises MalformedError if the digest does
    not match.
    """
    text = data[: -len(seal(b""))]
    if seal(text) != data:
        raise MalformedError("its checksum does not match")
    return text


def by_number(shard: str) -> tuple[int, str]:
    """Return the sort key of a shard name: first the number of the rank that saved the shard. Names that
    are no number come last.
    """
    return (int(shard), shard) if shard.isdigit() else (1 << 30, shard)


def merge(inventories: Collection[Inventory]) -> Inventory:
    """Return the union of the inventories. If several have a branch of the same incarnation, a decided
    branch replaces an undecided one.
    """
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
        raise ValueError(f"{value!r} is not a non-negative integer")
    return value


def _digest(value: Any) -> str:
    if not isinstance(value, str) or len(bytes.fromhex(value)) != _DIGEST_BYTES:
        raise ValueError(f"{value!r} is not a digest of 16 bytes in hex")
    return value
