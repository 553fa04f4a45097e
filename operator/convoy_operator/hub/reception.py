"""Calls of whom nobody knows yet: few at a time of one address, and their request comes soon or never."""

from __future__ import annotations

from collections.abc import Callable

from convoy_agents.wire.bounds import Bounds, Context

REQUEST_SECONDS = 5.0
"""For the whole request, from the call's first word."""
MOST_OF_ONE, MOST = 8, 256
"""Calls at once of one address, and of all together."""


def address(peer: str) -> str:
    """Of a peer, as gRPC writes it, without its port."""
    return peer.rpartition(":")[0] or peer


class Reception(Bounds):
    """Bounds by address."""

    def __init__(self, refused: Callable[[], object], seconds: float = REQUEST_SECONDS) -> None:
        """`refused`: told of each call that is one too many, or late."""
        super().__init__(_address_of, MOST_OF_ONE, MOST, refused, seconds)


async def _address_of(context: Context) -> str:
    return address(context.peer())
