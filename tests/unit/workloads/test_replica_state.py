"""Tests of `convoy.ReplicaState` against a fake agent."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from convoy_workloads.runtime import replica_state
from convoy_workloads.runtime.replica_state import ReplicaState
from convoy_workloads.runtime.tiers.memory_client import AgentUnavailable

ENVIRONMENT = {"CONVOY_SOCKET": "/agent.sock", "CONVOY_INCARNATION": "3", "RANK": "0"}


class FakeAgent:
    """An agent with two buffers. Each save occupies one until the test frees it."""

    def __init__(self) -> None:
        self.buffers: dict[str, int] = {}
        self.used: set[str] = set()
        self.saved: list[tuple[int, bytes]] = []
        self.requests: list[str] = []
        self.refusal: dict[str, Any] = {}
        """The answer to all requests, if it is not empty."""
        self.away = False
        self.closed = False

    def request(self, question: dict[str, Any], seconds: float) -> tuple[dict[str, Any], list[int]]:
        self.requests.append(question["type"])
        if self.away:
            raise AgentUnavailable("connection refused")
        if self.refusal:
            return self.refusal, []
        return getattr(self, question["type"])(question)  # type: ignore[no-any-return]

    def reserve(self, question: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        for name in ("0-0", "0-1"):
            self.buffers.setdefault(name, os.memfd_create(name))
            os.ftruncate(self.buffers[name], question["size"])
        return {"type": "buffers", "names": list(self.buffers)}, [os.dup(fd) for fd in self.buffers.values()]

    def poll(self, question: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        free = [name for name in self.buffers if name not in self.used]
        saved_ms = self.saved[-1][0] if self.saved else 0
        return {"type": "status", "buffer": free[0] if free else "", "savedMs": saved_ms}, []

    def seal(self, question: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        self.used.add(question["buffer"])
        data = os.pread(self.buffers[question["buffer"]], question["length"], 0)
        self.saved.append((question["step"], data))
        return {"type": "sealed"}, []

    def restore(self, question: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        if not self.saved:
            return {"type": "restore", "found": False}, []
        step, data = self.saved[-1]
        fd = os.memfd_create("state")
        os.write(fd, data + b"the rest of a buffer")
        facts = {"savedMs": step, "replica": 4, "length": len(data)}
        return {"type": "restore", "found": True, **facts}, [fd]

    def restored(self, question: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        return {"type": "done"}, []

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    made = FakeAgent()
    monkeypatch.setattr(replica_state, "MemoryClient", lambda path, hello: made)
    return made


def test_a_state_is_saved_and_restored(agent: FakeAgent) -> None:
    state = ReplicaState(ENVIRONMENT)
    assert state.available and state.restore() is None
    assert state.save(b"first") and state.save(memoryview(bytearray(b"second")))
    found = ReplicaState(ENVIRONMENT).restore()
    assert found is not None and (found.data, found.replica) == (b"second", 4)
    assert agent.requests[-1] == "restored"
    steps = [step for step, _ in agent.saved]
    assert steps == sorted(set(steps)) and found.saved_at == steps[-1] / 1000


def test_nothing_is_saved_while_no_buffer_is_free(agent: FakeAgent) -> None:
    state = ReplicaState(ENVIRONMENT)
    assert [state.save(b"x") for _ in range(3)] == [True, True, False]
    agent.used.clear()
    assert state.save(b"y") and agent.saved[-1][1] == b"y"


def test_buffers_grow_with_the_state(agent: FakeAgent) -> None:
    state = ReplicaState(ENVIRONMENT)
    assert state.save(b"x") and agent.requests.count("reserve") == 1
    agent.used.clear()
    large = bytes(replica_state.STEP_BYTES + 1)
    assert state.save(large) and agent.saved[-1][1] == large
    assert agent.requests.count("reserve") == 2


def test_a_saved_time_never_goes_back(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert ReplicaState(ENVIRONMENT).save(b"x")
    monkeypatch.setattr(time, "time", lambda: 900.0)
    assert ReplicaState(ENVIRONMENT).save(b"y")
    assert [step for step, _ in agent.saved] == [1_000_000, 1_000_001]


def test_a_refusal_is_logged_once_and_retried_later(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    state = ReplicaState(ENVIRONMENT)
    agent.refusal = {"type": "refused", "why": "5 more bytes are needed"}
    assert not state.save(b"x") and not state.save(b"x")
    assert agent.requests == ["reserve"]
    assert capfd.readouterr().err.count("5 more bytes are needed") == 1
    agent.refusal = {}
    monkeypatch.setattr(replica_state, "RETRY_SECONDS", 0.0)
    assert state.save(b"x")


def test_an_agent_that_does_not_answer_ends_nothing(agent: FakeAgent) -> None:
    agent.away = True
    state = ReplicaState(ENVIRONMENT)
    assert state.restore() is None and not state.save(b"x")
    state.close()
    assert agent.closed


@pytest.mark.parametrize("change", [{"RANK": "1"}, {"CONVOY_SOCKET": ""}, {"CONVOY_INCARNATION": "0"}])
def test_only_rank_0_of_a_replica_saves(agent: FakeAgent, change: dict[str, str]) -> None:
    state = ReplicaState({**ENVIRONMENT, **change})
    assert not state.available and not state.save(b"x") and state.restore() is None
    assert agent.requests == []


def test_an_empty_state_is_refused(agent: FakeAgent) -> None:
    with pytest.raises(ValueError, match="the state is empty"):
        ReplicaState(ENVIRONMENT).save(b"")
