"""Tests of agents on a network that loses packets: some packets at random, or all packets to one node."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host
from tests.integration.agents.memory_job import MemoryJob, reads, saved, state

from convoy_controllers.checkpoint.generation import Tier

A, B, C = "aaaa-1111", "bbbb-2222", "cccc-3333"
TABLE = f"ip convoy_test_{os.getpid()}"
HOOK = "{ type filter hook input priority -300; }"
TIMEOUT = 60.0
"""Seconds to wait for copies. The time is long because TCP retransmits after increasing pauses."""
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def job(hub: FakeHub) -> Iterator[MemoryJob]:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield MemoryJob(hub, Path(name))


@contextlib.contextmanager
def dropped(host: Host, which: str = "") -> Iterator[None]:
    """Within the context, drop packets that arrive for a node's agent. `which`: an nft expression that
    selects the packets; empty to drop all.
    """
    rule = f"tcp dport {host.agent.peer_port} {which} counter drop"
    made = f"add table {TABLE}; add chain {TABLE} arriving {HOOK}; add rule {TABLE} arriving {rule}"
    subprocess.run(["nft", made], check=True, timeout=20)
    try:
        yield
        listed = subprocess.run(["nft", "list", "table", *TABLE.split()], check=True, capture_output=True)
        assert b"counter packets 0 " not in listed.stdout, "nothing was dropped"
    finally:
        subprocess.run(["nft", f"delete table {TABLE}"], check=True, timeout=20)


async def test_copies_are_made_over_a_network_that_loses_packets(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    with dropped(two, "numgen inc mod 20 < 1"):
        for step in (10, 20, 30):
            for rank in ranks:
                assert (await rank.save(step))["type"] == "sealed"
            for rank in ranks:
                await rank.stands(Tier.PEER, 1, step, TIMEOUT)
        await one.stop()
        again = await job.form(2, [(C, three), (B, two)])
        # Node two loses packets that arrive. It now starts a connection to another node itself.
        for shards in await reads(again):
            assert shards == {"0": state(30, 0), "1": state(30, 1)}


async def test_a_save_completes_despite_a_half_open_connection(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.PEER)
    with dropped(two):
        await saved(ranks, 1, 20, Tier.LOCAL)
        for rank in ranks:
            assert rank.stand["marks"][Tier.PEER.value] == [1, 10]
        # All buffers are in use: one by the copied save, and the others by saves without copies.
        assert not ranks[0].stand["buffer"]
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 20, TIMEOUT)
    await saved(ranks, 1, 30, Tier.LOCAL, Tier.PEER)
