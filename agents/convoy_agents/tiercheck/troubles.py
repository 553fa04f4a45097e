"""What is wrong with a pod's checkpoints: a table by cause, each of which ends by itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What it means for the job, as hub.proto has it."""

    NO_MEMORY = "NO_MEMORY"
    LOST = "LOST"
    INEXACT = "INEXACT"
    NOT_STORED = "NOT_STORED"
    NOT_COPIED = "NOT_COPIED"
    NOT_RESTORED = "NOT_RESTORED"


class Cause(NamedTuple):
    """What ends together."""

    kind: Kind
    source: str = ""
    """Where it comes from when a pod can have several of the kind."""
    rank: int = 0
    """Whose it is, of what ranks have each by themselves."""


Troubles = Mapping[Cause, str]
"""What is said of each."""


def with_message(known: Troubles, cause: Cause, message: str) -> Troubles:
    """With this message of the cause, or without the cause when there is none. What is no news gives the very
    same table.
    """
    if known.get(cause, "") == message:
        return known
    others = {one: why for one, why in known.items() if one != cause}
    return {**others, cause: message} if message else others


def by_kind(known: Troubles) -> dict[str, str]:
    """All that is said of each kind, in the order of the causes."""
    found: dict[str, list[str]] = {}
    for cause in sorted(known):
        found.setdefault(cause.kind.value, []).append(known[cause])
    return {kind: "; ".join(said) for kind, said in found.items()}
