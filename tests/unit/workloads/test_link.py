from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from convoy_workloads.runtime import link
from convoy_workloads.runtime.commits import Commits
from convoy_workloads.runtime.frames import Decoder, Message
from convoy_workloads.runtime.lineage import Generation
from convoy_workloads.runtime.link import RankLink


class Agent:
    """The agent's end of one connection."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(path)
        self._server.listen()
        self._server.settimeout(30)
        self._decoder = Decoder()
        self._heard: list[Message] = []

    def accept(self) -> None:
        self._connection, _ = self._server.accept()
        self._connection.settimeout(30)

    def hear(self) -> Message:
        while not self._heard:
            data = self._connection.recv(4096)
            assert data
            self._heard.extend(self._decoder.feed(data))
        return self._heard.pop(0)

    def close(self) -> None:
        self._server.close()
        self._connection.close()


@pytest.fixture
def agent() -> Iterator[Agent]:
    with tempfile.TemporaryDirectory(prefix="cv") as folder:
        agent = Agent(str(Path(folder) / "a"))
        yield agent
        agent.close()


def test_the_first_step_does_not_wait_for_the_next_fold(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PROGRESS_SECONDS", 3600.0)
    rank = RankLink(agent.path, {"type": "hello"}, lambda _: None, list)
    agent.accept()
    rank.progress({"type": "progress", "step": 0})
    assert [agent.hear().get("step") for _ in range(2)] == [None, 0]
    rank.progress({"type": "progress", "step": 1}, urgent=True)
    assert agent.hear()["step"] == 1
    # The next is folded: it goes with the end of the link.
    rank.progress({"type": "progress", "step": 2})
    rank.close()
    assert agent.hear()["step"] == 2


def test_an_undecided_generation_is_said_again_until_it_is_decided(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RESAY_SECONDS", 0.2)
    commits = Commits(1, lambda _: None)
    rank = RankLink(agent.path, {"type": "hello"}, commits.on_message, commits.pending)
    commits.connect(rank.send)
    agent.accept()
    assert agent.hear()["type"] == "hello"
    commits.prepare(Generation(1, 5), None, seal=lambda: None, complete=lambda: True)
    assert [agent.hear()["type"] for _ in range(3)] == ["prepared"] * 3
    commits.abandon()
    assert commits.pending() == []
    rank.close()
