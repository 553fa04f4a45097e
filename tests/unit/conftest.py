"""Settings of the unit tests, several processes of which share the machine."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from tests.ports import free_port

# Set this before any test imports torch or numpy. On a busy machine, threads that wait for each other take
# minutes for the work of one second.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def unused_tcp_port_factory() -> Callable[[], int]:
    """Return a function that returns ports which stay free. Those of pytest-asyncio's fixture may become the
    source ports of connections.
    """
    return free_port
