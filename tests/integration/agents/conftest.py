from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
from tests.integration.agents.harness import Authority, FakeHub, Host
from tests.integration.leftovers import unmount_below

HostMaker = Callable[[str], Coroutine[None, None, Host]]


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def hub(authority: Authority) -> AsyncIterator[FakeHub]:
    hub = FakeHub(authority)
    await hub.start()
    yield hub
    await hub.stop()


@pytest.fixture
async def make_host(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> AsyncIterator[HostMaker]:
    """Return a function that starts a node with its agent. After the test, stop the agents and remove their
    mounts.
    """
    if os.geteuid():
        pytest.skip("bind mounts need root")
    root = tmp_path_factory.mktemp("n")
    hosts: list[Host] = []

    async def make(node: str) -> Host:
        host = Host(root, node, hub)
        hosts.append(host)
        await host.start()
        return host

    try:
        yield make
        for host in hosts:
            await host.stop()
    finally:
        unmount_below(root)
