"""The addresses of the replicas of a job, in the messages of the agent."""

from __future__ import annotations

import re
from collections.abc import Sequence

from convoy_workloads.runtime.frames import Message

MAX_ADDRESSES = 64
"""Maximum number of addresses of a message."""
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z.-]{1,253}):[0-9]{1,5}")


def addresses(message: Message) -> tuple[str, ...] | None:
    """Return the addresses (`host:port`) of a message, the replica's own first; None if it is no message with
    the addresses of a replica.
    """
    found = message.get("addresses")
    if message.get("type") != "endpoints" or not isinstance(found, list) or not found:
        return None
    if not all(isinstance(one, str) and _ADDRESS.fullmatch(one) for one in found[:MAX_ADDRESSES]):
        return None
    return tuple(found[:MAX_ADDRESSES])


def endpoints(incarnation: int, own: str, others: Sequence[str]) -> Message:
    """Return the message with the addresses for a replica."""
    return {"type": "endpoints", "incarnation": incarnation, "addresses": [own, *others]}
