"""A pod's present troubles with its checkpoints, by cause, and pure functions on them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """The kinds of trouble. hub.proto has the same names."""

    NO_MEMORY = "NO_MEMORY"
    LOST = "LOST"
    INEXACT = "INEXACT"
    NOT_STORED = "NOT_STORED"
    NOT_COPIED = "NOT_COPIED"
    NOT_RESTORED = "NOT_RESTORED"
    YIELDED = "YIELDED"


class Cause(NamedTuple):
    """The cause of a trouble. The table has at most one message for each cause."""

    kind: Kind
    source: str = ""
    """The node, purpose or object to which the trouble belongs. It distinguishes several troubles of one
    kind.
    """
    rank: int = 0
    """The rank that has the trouble; 0 also for troubles that do not belong to a single rank."""


Troubles = Mapping[Cause, str]
"""A message for each present trouble of a pod, by the cause of the trouble."""


def with_message(known: Troubles, cause: Cause, message: str) -> Troubles:
    """Return the table in which `cause` has this message. An empty message removes the cause. If nothing
    changes, return `known` itself.
    """
    if known.get(cause, "") == message:
        return known
    others = {one: why for one, why in known.items() if one != cause}
    return {**others, cause: message} if message else others


def by_kind(known: Troubles) -> dict[str, str]:
    """Return one message for each kind of trouble: the messages of its causes, joined."""
    found: dict[str, list[str]] = {}
    for cause in sorted(known):
        found.setdefault(cause.kind.value, []).append(known[cause])
    return {kind: "; ".join(messages) for kind, messages in found.items()}
