from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from convoy_workloads.runtime import link
from convoy_workloads.runtime.frames import Decoder, Message, encode
from convoy_workloads.runtime.link import RankLink
from convoy_workloads.runtime.tiers.agent_notices import AgentNotices


class Agent:
    """Stands in for the agent at its end of one connection."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(path)
        self._server.listen()
        self._server.settimeout(30)
        self._decoder = Decoder()
        self._received: list[Message] = []

    def accept(self) -> None:
        self._connection, _ = self._server.accept()
        self._connection.settimeout(30)

    def receive(self) -> Message:
        while not self._received:
            data = self._connection.recv(4096)
            assert data
            self._received.extend(self._decoder.feed(data))
        return self._received.pop(0)

    def send(self, message: Message) -> None:
        self._connection.sendall(encode(message))

    def hang_up(self) -> None:
        self._connection.close()

    def close(self) -> None:
        self._server.close()
        self._connection.close()


@pytest.fixture
def agent() -> Iterator[Agent]:
    with tempfile.TemporaryDirectory(prefix="cv") as folder:
        agent = Agent(str(Path(folder) / "a"))
        yield agent
        agent.close()


def test_the_first_step_is_sent_before_the_next_interval(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PROGRESS_SECONDS", 3600.0)
    rank = RankLink(agent.path, {"type": "hello"}, lambda _: None)
    agent.accept()
    rank.progress({"type": "progress", "step": 0})
    assert [agent.receive().get("step") for _ in range(2)] == [None, 0]
    rank.progress({"type": "progress", "step": 1}, urgent=True)
    assert agent.receive()["step"] == 1
    # A message that is not urgent waits. It is sent when the link closes.
    rank.progress({"type": "progress", "step": 2})
    rank.close()
    assert agent.receive()["step"] == 2


def test_the_link_reconnects_and_receives_messages(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "RECONNECT_SECONDS", (0.01, 0.01))
    notices, received = AgentNotices(), threading.Event()

    def on_message(message: Message) -> None:
        notices.on_message(message)
        received.set()

    rank = RankLink(agent.path, {"type": "hello"}, on_message)
    for message in ({"type": "unknown"}, {"type": "refused", "incarnation": 1, "step": 5, "seen": 2}):
        agent.accept()
        assert agent.receive()["type"] == "hello"
        assert not notices.stale
        agent.send(message)
        assert received.wait(30)
        received.clear()
        agent.hang_up()
    assert notices.stale
    rank.close()
