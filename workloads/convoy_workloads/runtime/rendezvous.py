"""Lets the other ranks wait until rank 0 listens, before they connect to rank 0's TCPStore.

A TCPStore client of c10d that connects too early waits 0.25 to 0.75 s before it tries again (measured with
torch 2.13). At a restart in place the failed rank is often ready before rank 0 and would lose that time.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from convoy_workloads.runtime.rank_context import RankContext

LISTEN_SECONDS = 10.0
"""Maximum number of seconds to wait until rank 0 listens. After that, torch itself tries to connect and
reports any error.
"""
POLL_SECONDS = 0.005
CONNECT_SECONDS = 1.0


def await_store(context: RankContext, environment: Mapping[str, str] = os.environ) -> None:
    """Wait until rank 0 listens at MASTER_ADDR and MASTER_PORT, at most `LISTEN_SECONDS`."""
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if context.rank == 0 or not address or not port.isdecimal():
        return
    deadline = time.monotonic() + LISTEN_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection((address, int(port)), CONNECT_SECONDS).close()
        except OSError:
            time.sleep(POLL_SECONDS)
        else:
            return
