"""A hub with the agents of one job and their streams, for tests."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import grpc
import pytest

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.callers import Caller
from convoy_controllers.keys import Key
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_operator import views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.hub import sessions
from convoy_operator.hub.assembly import assemble
from convoy_operator.hub.ca import Authority, make_authority
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.sessions import Sessions
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

from .conftest import FakeApi

STATE = wire.RankReport.State


def report(**more: Any) -> wire.PodReport:
    return wire.PodReport(**{"pod_uid": "u", "launcher_connected": True, **more})


def rank(state: int = STATE.RUNNING, **more: Any) -> wire.RankReport:
    return wire.RankReport(rank=0, state=state, **more)  # type: ignore[arg-type]


class Queue:
    """A fake queue that records the keys that are added."""

    def __init__(self) -> None:
        self.added: list[tuple[Key, float]] = []

    def add(self, key: Key, delay: float = 0.0, *, high: bool = True) -> None:
        self.added.append((key, delay))

    def drain(self) -> list[float]:
        """Return the delays of the keys that were added since the last call."""
        delays = [delay for _, delay in self.added]
        self.added.clear()
        return delays


class Aborted(Exception):
    """Raised by the fake `abort`, because gRPC's `abort` also raises."""


class Silent:
    """A stream context that delivers the given messages and then no more."""

    def __init__(self, messages: list[wire.AgentMessage]) -> None:
        self.messages = messages
        self.written: list[wire.HubMessage] = []
        self.code: grpc.StatusCode | None = None

    async def read(self) -> wire.AgentMessage:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def write(self, message: wire.HubMessage) -> None:
        self.written.append(message)

    async def send_initial_metadata(self, metadata: object) -> None:
        pass

    async def abort(self, code: grpc.StatusCode, why: str) -> None:
        self.code = code
        raise Aborted(why)


class AgentsHarness:
    """A hub and one job with one pod. The test sets the clock."""

    KEY = Key(TRAINING_JOB.name, "ns", "job")

    @pytest.fixture(autouse=True)
    async def made(self, api: FakeApi) -> None:
        self.now = 100.0
        self.cache = ClusterCache()
        self.queue = Queue()
        self.hub = assemble(
            HubContext(
                cache=self.cache,
                queue=self.queue,  # type: ignore[arg-type]
                gateway=api,
                metrics=Metrics(),
                settings=Settings(),
                clock=lambda: self.now,
                wall=lambda: self.now + 1e6,
            ),
            progress_delay=lambda key: 10.0,
        )
        self.hub.monitor.start_leading()
        self.authority = Authority(make_authority())
        self.hub.tokens.start(self.authority)
        self.pod = self.add_pod("u", "n0")

    def add_pod(self, uid: str, node: str) -> Any:
        raw = {
            "metadata": {
                "name": f"job-{uid}",
                "namespace": "ns",
                "uid": uid,
                "resourceVersion": "1",
                "labels": {"convoy.dev/job": "job"},
            },
            "spec": {"nodeName": node},
        }
        self.cache.pods.upsert(views.pod(raw))
        return views.pod(raw).view

    def add_node(self, name: str) -> None:
        raw = {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}}
        self.cache.nodes.upsert(views.node(raw))

    async def session(self, monkeypatch: pytest.MonkeyPatch, node: str, left: float) -> Silent:
        """Run the stream of an agent that sends only a Hello. Its certificate expires in `left` seconds."""
        monkeypatch.setattr(sessions, "caller", lambda context: Caller(node, time.time() + left))
        context = Silent([wire.AgentMessage(hello=wire.Hello(node=node, peer_address=f"{node}:8472"))])
        its = Sessions(
            self.hub, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        async with asyncio.timeout(60):
            with suppress(Aborted):
                await its.Session(None, context)
        return context

    def join(self, node: str = "n0", *pods: wire.PodReport) -> Any:
        return self.hub.streams.join(wire.Hello(node=node, peer_address=f"{node}:8472", pods=pods))
