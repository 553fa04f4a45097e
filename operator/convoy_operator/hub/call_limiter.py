"""Limits of calls without a client certificate: the number of concurrent calls, and the time to send the
request.
"""

from __future__ import annotations

from collections.abc import Callable

from convoy_agents.wire.call_limits import CallLimits, Context

REQUEST_SECONDS = 5.0
"""Timeout in seconds for receiving the whole request, from the start of the call."""
MAX_CALLS_PER_ADDRESS, MAX_CALLS = 8, 256
"""Maximum number of concurrent calls of one address, and of all addresses together."""


def address(peer: str) -> str:
    """Return the address of a gRPC peer without its port."""
    return peer.rpartition(":")[0] or peer


class AnonymousCallLimiter(CallLimits):
    """Limits the concurrent calls from each address, and from all addresses together."""

    def __init__(self, refused: Callable[[], object], seconds: float = REQUEST_SECONDS) -> None:
        """`refused` is called for each call that exceeds a limit or the timeout."""
        super().__init__(_address_of, MAX_CALLS_PER_ADDRESS, MAX_CALLS, refused, seconds)


async def _address_of(context: Context) -> str:
    return address(context.peer())
