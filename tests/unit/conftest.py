"""Settings of the unit tests, several processes of which share the machine."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator

import pytest
from tests.ports import free_port

# Set this before any test imports torch or numpy. On a busy machine, threads that wait for each other take
# minutes for the work of one second.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collection the million objects that the collection of the tests makes. They live to
    the end, and each full garbage collection would walk them in half a second.
    """
    usual = gc.get_threshold()
    gc.set_threshold(100_000)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*usual)


@pytest.fixture
def unused_tcp_port_factory() -> Callable[[], int]:
    """Return a function that returns ports which stay free. Those of pytest-asyncio's fixture may become the
    source ports of connections.
    """
    return free_port
