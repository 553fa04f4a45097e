"""TCP ports of this machine."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """So many different ones that nobody has now."""
    with ExitStack() as stack:
        # All are held until the last one is known: the next might be given out twice.
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]


def free_port() -> int:
    """One that nobody has now."""
    return free_ports(1)[0]
