"""Tests of deliveries: pods that share a download, and pods that leave during it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.stores import memory_store, places

from convoy_agents.csi.folders import short_name
from convoy_agents.models import delivery
from convoy_agents.models.delivery import ModelDeliveries
from convoy_agents.models.folders import ModelFolders
from convoy_agents.models.source import Failure, ModelState
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.job_folders import JobFolder
from convoy_agents.wire import hub_pb2

SECONDS = 10.0
PIECES = [places.noise(1), places.noise(2)]


class Remotes:
    """A store in memory. Reads wait while `open` is not set, and fail with `error`."""

    def __init__(self) -> None:
        self.blobs = memory_store.Memory()
        self.store = memory_store.Store(self.blobs, "team", "uid-1", rules=places.RULES)
        places.saved(self.store, 7, *PIECES)
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None
        self.reads = self.cancelled = 0

    async def read(self, name: str, job: JobFolder, do: Callable[..., Any]) -> Any:
        self.reads += 1
        store = memory_store.Store(self.blobs, job.namespace, job.uid, rules=places.RULES)
        assert name == "s3"
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return await asyncio.to_thread(do, store, threading.Event())


class Node:
    def __init__(self, root: Path) -> None:
        self.remotes = Remotes()
        self.folders = ModelFolders(root)
        self.deliveries = ModelDeliveries(self.folders, self.remotes, self._report)  # type: ignore[arg-type]
        self.states: dict[str, list[ModelState]] = {}
        self._changed = asyncio.Event()

    def _report(self, uid: str, state: ModelState) -> None:
        self.states.setdefault(uid, []).append(state)
        self._changed.set()

    def order(self, uid: str, step: int = 7, volume: bool = True, job_uid: str = "uid-1") -> None:
        if volume:
            self.folders.prepare_pod(short_name(uid))
        source = hub_pb2.ModelSource(namespace="team", job_uid=job_uid, store="s3", incarnation=1, step=step)
        self.deliveries.deliver(hub_pb2.DeliverModel(pod_uid=uid, source=source))

    async def until(self, uid: str, wanted: Callable[[ModelState], bool]) -> ModelState:
        async with asyncio.timeout(SECONDS):
            while not wanted(self.states[uid][-1]):
                self._changed.clear()
                await self._changed.wait()
        return self.states[uid][-1]

    async def ready(self, uid: str) -> bytes:
        await self.until(uid, lambda state: state.ready)
        folder = self.folders.pod(short_name(uid))
        return (folder / "shards" / "0" / "gen-1-7").read_bytes()


async def eventually(check: Callable[[], object]) -> None:
    """Poll until `check` returns a true value. Tests use it for conditions that cause no event."""
    async with asyncio.timeout(SECONDS):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(delivery, "MAX_RETRY_SECONDS", 0.02)
    made = Node(tmp_path)
    yield made
    made.remotes.open.set()
    await made.deliveries.close()


async def test_two_pods_share_a_download_and_one_may_leave(node: Node) -> None:
    node.remotes.open.clear()
    node.order("a")
    node.order("b")
    await eventually(lambda: node.remotes.reads)
    node.deliveries.drop_pod("a")
    node.remotes.open.set()
    assert await node.ready("b") == b"".join(PIECES)
    assert (node.remotes.reads, node.remotes.cancelled) == (1, 0)
    assert not any(state.ready for state in node.states["a"])


async def test_an_unexpected_error_is_reported_and_the_delivery_goes_on(node: Node) -> None:
    node.remotes.error = RuntimeError("cannot schedule new futures")
    node.order("a")
    state = await node.until("a", lambda state: state.failure is not Failure.NONE)
    assert "RuntimeError: cannot schedule new futures" in state.message
    node.remotes.error = None
    assert await node.ready("a") == b"".join(PIECES)


async def test_a_download_that_no_pod_wants_ends(node: Node) -> None:
    node.remotes.open.clear()
    node.order("a")
    await eventually(lambda: node.remotes.reads)
    node.deliveries.drop_pod("a")
    await eventually(lambda: node.remotes.cancelled)
    node.remotes.open.set()
    node.order("b")
    assert await node.ready("b") == b"".join(PIECES)


async def test_a_repeated_order_only_repeats_the_report(node: Node) -> None:
    node.order("a")
    await node.ready("a")
    count = len(node.states["a"])
    node.order("a")
    assert len(node.states["a"]) == count + 1 and node.states["a"][-1].ready
    assert node.remotes.reads == 1


async def test_a_delivery_waits_for_the_volume_of_its_pod(node: Node) -> None:
    node.order("a", volume=False)
    await eventually(lambda: list(node.folders._generations.glob("*")))
    assert not node.states["a"][-1].ready
    node.folders.prepare_pod(short_name("a"))
    assert await node.ready("a") == b"".join(PIECES)


async def test_a_short_outage_is_not_reported_but_a_long_one_is(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.remotes.error = StoreError("the store is away", retriable=True)
    node.order("a")
    await eventually(lambda: node.remotes.reads >= 3)
    assert [state.failure for state in node.states["a"]] == [Failure.NONE]
    monkeypatch.setattr(delivery, "PATIENCE_SECONDS", 0.0)
    failed = await node.until("a", lambda state: bool(state.failure is not Failure.NONE))
    assert (failed.failure, failed.message) == (Failure.STORE_UNREACHABLE, "the store is away")
    reports, reads = len(node.states["a"]), node.remotes.reads
    await eventually(lambda: node.remotes.reads >= reads + 3)
    assert len(node.states["a"]) == reports, "the same failure is reported once"
    node.remotes.error = None
    assert await node.ready("a") == b"".join(PIECES)


async def test_a_cause_that_does_not_pass_is_reported_at_once(node: Node) -> None:
    node.order("a", step=8)
    failed = await node.until("a", lambda state: state.failure is not Failure.NONE)
    assert failed.failure is Failure.NOT_FOUND and "step 8 of incarnation 1" in failed.message
    node.remotes.error = OSError(28, "No space left on device")
    failed = await node.until("a", lambda state: state.failure is Failure.NOT_STORED)
    assert "No space left on device" in failed.message


async def test_a_journal_is_refused_with_its_shard(node: Node) -> None:
    base = places.shard(7, PIECES)
    segment = places.put(
        node.remotes.store, places.shard(9, [places.noise(3)], extends=base.id), [places.noise(3)]
    )
    assert node.remotes.store.commit(places.record_of(segment))
    node.order("a", step=9)
    failed = await node.until("a", lambda state: state.failure is not Failure.NONE)
    assert failed.failure is Failure.IN_JOURNAL and "shard 0 ends in a journal" in failed.message


async def test_a_shard_without_its_manifest_is_damaged(node: Node) -> None:
    (manifest,) = (key for key in node.remotes.blobs.found if "/manifests/" in key)
    del node.remotes.blobs.found[manifest]
    node.order("a")
    failed = await node.until("a", lambda state: state.failure is not Failure.NONE)
    assert failed.failure is Failure.DIGEST_MISMATCH and "shard '0'" in failed.message


async def test_an_order_cannot_lead_out_of_the_store(node: Node) -> None:
    node.order("a", job_uid="../uid-1")
    failed = await node.until("a", lambda state: state.failure is not Failure.NONE)
    assert failed.failure is Failure.NOT_FOUND and "'../uid-1'" in failed.message
