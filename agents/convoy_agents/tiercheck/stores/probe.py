"""What a store can be relied on for: tried out, since some S3 APIs ignore what they do not know, and
some file systems have no hard links.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from convoy_agents.tiercheck.stores.blobs import Blobs
from convoy_agents.tiercheck.stores.errors import StoreError

_RACERS = 8
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What it does as it should."""

    conditional: bool
    """Of several who create the same, one does. Where not, nothing is committed there."""
    listing: bool
    """A listing has what was written, and not what was deleted. Where not, a restart may go on from
    an older generation than there is."""
    ranges: bool
    """A part can be read."""
    touch: bool
    """A chunk can be promised anew without its bytes."""
    checksums: bool
    """What was damaged on its way is refused. Where not, it is found when it is read."""

    @property
    def summary(self) -> str:
        """One line for a condition."""
        wanting = [
            what
            for there, what in (
                (self.conditional, "ignores conditional writes: nothing is committed there"),
                (self.listing, "lists late: a restart may go on from an older checkpoint"),
                (self.ranges, "reads no ranges: chunks are read whole"),
                (self.touch, "copies nothing onto itself: chunks used again are sent again"),
                (self.checksums, "checks no checksums: damage on the way is found when it is read"),
            )
            if not there
        ]
        return "; ".join(wanting) or "conditional writes, listings, ranges, copies and checksums work"


def probe(blobs: Blobs) -> Capabilities:
    """Writes a few small blobs and deletes them. StoreError when the store cannot be used at all."""
    folder = f"probe-{secrets.token_hex(8)}"
    data = bytes(range(64))
    keys = {name: f"{folder}/{name}" for name in ("plain", "damaged", *map(str, range(_ROUNDS)))}
    try:
        blobs.put(keys["plain"], data)
        if (found := blobs.get(keys["plain"])) != data:
            raise StoreError(
                f"{blobs.where}: {len(found or b'')} bytes are read where {len(data)} were written; "
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
    """Whether of many who create it at once one does, and it stays so."""
    claims = [str(number).encode() for number in range(_RACERS)]
    errors: list[StoreError] = []

    def first(claim: bytes) -> bool:
        try:
            return blobs.create(key, claim)
        except StoreError as error:
            # A store may refuse all but one by saying that they are in conflict.
            if error.retriable:
                errors.append(error)
            return False

    with ThreadPoolExecutor(_RACERS) as pool:
        won = [claim for claim, done in zip(claims, pool.map(first, claims), strict=True) if done]
    if not won and errors:
        raise errors[0]
    return len(won) == 1 and blobs.get(key) == won[0]
