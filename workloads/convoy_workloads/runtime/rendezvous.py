"""Ranks wait for the first one to listen before they connect to its store.

A client of c10d's TCPStore that comes too soon backs off for 0.25 to 0.75 s (measured with torch 2.13). At a
restart in place the rank that failed is often up before rank 0, so it would lose that time.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from convoy_workloads.runtime.rank_context import RankContext

LISTEN_SECONDS = 10.0
"""Longest wait. Then torch tries by itself, and says what is wrong."""
POLL_SECONDS = 0.005
CONNECT_SECONDS = 1.0


def await_store(context: RankContext, environment: Mapping[str, str] = os.environ) -> None:
    """Return once rank 0 listens at MASTER_ADDR and MASTER_PORT, or after LISTEN_SECONDS."""
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
