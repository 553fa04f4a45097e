"""The table of troubles with a pod's checkpoints, by cause. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """The kinds of trouble, as in hub.proto."""

    NO_MEMORY = "NO_MEMORY"
    LOST = "LOST"
    INEXACT = "INEXACT"
    NOT_STORED = "NOT_STORED"
    NOT_COPIED = "NOT_COPIED"
    NOT_RESTORED = "NOT_RESTORED"


class Cause(NamedTuple):
    """The cause of a trouble. A cause has at most one message."""

    kind: Kind
    source: str = ""
    """Where the trouble comes from, if a pod can have several of one kind."""
    rank: int = 0
    """The rank, for troubles that each rank has on its own."""


Troubles = Mapping[Cause, str]
"""Messages by cause."""


def with_message(known: Troubles, cause: Cause, message: str) -> Troubles:
    """Return the table with this message of a cause, or without the cause if the message is empty. If
    nothing changes, the same table is returned.
    """
    if known.get(cause, "") == message:
        return known
    others = {one: why for one, why in known.items() if one != cause}
    return {**others, cause: message} if message else others


def by_kind(known: Troubles) -> dict[str, str]:
    """Return the messages of each kind, joined in the order of their causes."""
    found: dict[str, list[str]] = {}
    for cause in sorted(known):
        found.setdefault(cause.kind.value, []).append(known[cause])
    return {kind: "; ".join(messages) for kind, messages in found.items()}
