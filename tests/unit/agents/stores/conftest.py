"""Fixtures for tests of stores: an S3 server, a faulty network to it, and a store of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.agents import fault_proxy
from tests.unit.agents.fault_proxy import FaultProxy
from tests.unit.agents.stores.places import (
    Place,
    s3_place,
    volume_place,
)


@pytest.fixture(scope="session")
def server() -> Iterator[int]:
    with fault_proxy.s3_server() as port:
        yield port


@pytest.fixture
def proxy(server: int) -> Iterator[FaultProxy]:
    found = FaultProxy(server)
    yield found
    found.close()


@pytest.fixture(params=["volume", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "volume":
        return volume_place(tmp_path)
    return s3_place(f"http://127.0.0.1:{request.getfixturevalue('server')}")
