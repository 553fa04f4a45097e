"""Tests the guarantees of a store. Some S3 APIs ignore options that they do not know, and some file systems
have no hard links.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.errors import StoreError

_CREATORS = 8
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The guarantees that a store gives, as `probe` found them."""

    conditional: bool
    """True if exactly one of several clients that create the same object succeeds. If False, nothing is
    committed in the store.
    """
    listing: bool
    """True if a listing contains every written object and no deleted object. If False, a restart may use an
    older generation.
    """
    ranges: bool
    """True if part of a blob can be read without the rest."""
    touch: bool
    """True if the write time of a blob can be renewed without sending its bytes."""
    checksums: bool
    """True if the store refuses bytes that were damaged in transit. If False, the damage is detected when
    they are read.
    """

    @property
    def summary(self) -> str:
        """One line for a condition's message. It lists the missing guarantees, or states that all work."""
        wanting = [
            what
            for there, what in (
                (self.conditional, "ignores conditional writes, so nothing is committed there"),
                (self.listing, "lists objects late, so a restart may use an older checkpoint"),
                (self.ranges, "does not read ranges, so chunks are read whole"),
                (self.touch, "cannot copy an object onto itself, so reused chunks are sent again"),
                (self.checksums, "does not check checksums, so damage in transit is found only on reading"),
            )
            if not there
        ]
        return "; ".join(wanting) or "conditional writes, listings, ranges, copies and checksums work"


def probe(blobs: Blobs) -> Capabilities:
    """Write a few small blobs to the store, check how the store treats them, and delete them. Return the
    guarantees.

    Raises StoreError if the store is unusable.
    """
    folder = f"probe-{secrets.token_hex(8)}"
    data = bytes(range(64))
    keys = {name: f"{folder}/{name}" for name in ("plain", "damaged", *map(str, range(_ROUNDS)))}
    try:
        blobs.put(keys["plain"], data)
        if (found := blobs.get(keys["plain"])) != data:
            raise StoreError(
                f"{blobs.where}: {len(found or b'')} bytes were read where {len(data)} were written; "
                "this is no store",
                retriable=False,
            )
        there = "plain" in blobs.names(folder).written
        ranges = blobs.get(keys["plain"], (2, 5)) == data[2:7]
        touch = blobs.touch(keys["plain"]) and blobs.get(keys["plain"]) == data
        conditional = all(_one_wins(blobs, keys[str(number)]) for number in range(_ROUNDS))
        checksums = blobs.refuses_damage(keys["damaged"])
        blobs.remove(keys["plain"])
        gone = "plain" not in blobs.names(folder).written
    finally:
        for key in keys.values():
            blobs.remove(key)
        blobs.tidy(folder, 0.0)
    return Capabilities(conditional, there and gone, ranges, touch, checksums)


def _one_wins(blobs: Blobs, key: str) -> bool:
    """Return True if exactly one of several concurrent `create` calls succeeds, and its bytes stay."""
    claims = [str(number).encode() for number in range(_CREATORS)]
    errors: list[StoreError] = []

    def first(claim: bytes) -> bool:
        try:
            return blobs.create(key, claim)
        except StoreError as error:
            # A retriable error may be a conflict between the creators, so it counts as a failed `create`. If
            # no `create` succeeds, the error is raised below.
            if error.retriable:
                errors.append(error)
            return False

    with ThreadPoolExecutor(_CREATORS) as pool:
        won = [claim for claim, done in zip(claims, pool.map(first, claims), strict=True) if done]
    if not won and errors:
        raise errors[0]
    return len(won) == 1 and blobs.get(key) == won[0]
