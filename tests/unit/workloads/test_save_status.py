"""Tests of the buffer that a rank may write, depending on the agent's responses and on the times of the
requests.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers import save_status
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints
from convoy_workloads.runtime.tiers.memory_client import AgentUnavailable
from convoy_workloads.runtime.tiers.save_status import LOCAL, PEER, SaveStatus

SECONDS = 20.0
FIVE = Generation(1, 5)


class Client:
    """Stands in for the connection to the agent. It responds only when the test provides a response."""

    def __init__(self) -> None:
        self.requests: queue.Queue[str] = queue.Queue()
        self.responses: queue.Queue[Any] = queue.Queue()
        self.over = threading.Event()

    def request(self, question: Any, seconds: float) -> tuple[Any, list[int]]:
        self.requests.put(question["known"])
        found = self.responses.get()
        if found is None:
            # Block forever, because the polling thread never ends. The test continues.
            self.over.set()
            threading.Event().wait()
        if isinstance(found, Exception):
            raise found
        return {"type": "status", "status": found}, []


def stand(buffer: str = "", holds: tuple[int, ...] = (), **marks: int) -> str:
    """Return a status message of the agent in incarnation 1."""
    return json.dumps(
        {
            "buffer": buffer,
            "holds": [[1, step] for step in holds],
            "uploads": [],
            "marks": {tier: [1, step] for tier, step in marks.items()},
        }
    )


class Scene:
    def __init__(self) -> None:
        self.client = Client()
        self.status = SaveStatus(self.client)  # type: ignore[arg-type]
        self.status.start()
        self.next_request()

    def next_request(self) -> str:
        return self.client.requests.get(timeout=SECONDS)

    def respond(self, response: Any) -> str:
        """Respond to the open request. Return the last known status, which the next request contains."""
        self.client.responses.put(response)
        return self.next_request()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.client.responses.put(None)
    assert scene.client.over.wait(SECONDS)


def test_the_next_request_contains_the_previous_response(scene: Scene) -> None:
    first = stand("0-0")
    assert scene.respond(first) == first
    assert scene.status.buffer == "0-0" and scene.status.wait_buffer(0.0)


def test_a_response_to_an_earlier_request_does_not_free_a_buffer(scene: Scene) -> None:
    scene.respond(stand("0-0"))
    scene.status.start_write("0-0", FIVE)
    assert scene.status.buffer == ""
    # The response is late: its request was sent before the agent knew of the save.
    scene.respond(stand("0-0", local=3))
    assert scene.status.buffer == ""
    scene.respond(stand("0-1", local=4))
    assert scene.status.buffer == "0-1", "another one is free for all that"


def test_a_save_that_the_agent_holds_is_known_to_the_agent(scene: Scene) -> None:
    scene.respond(stand("0-0"))
    scene.status.start_write("0-0", FIVE)
    scene.respond(stand("", (5,)))
    scene.respond(stand("0-0", (), local=9, peer=9))
    assert scene.status.buffer == "0-0"


def test_a_failed_save_frees_its_buffer_with_the_next_request(scene: Scene) -> None:
    scene.respond(stand("0-0"))
    scene.status.start_write("0-0", FIVE)
    scene.status.finish_write()
    # The request of this response was sent before the write was finished.
    scene.respond(stand("0-0", local=1))
    assert scene.status.buffer == ""
    scene.respond(stand("0-0", local=2))
    assert scene.status.buffer == "0-0"
    assert not scene.status.wait_reached(FIVE, LOCAL, SECONDS), "nobody holds it: no need to wait"


def test_a_generation_settles_when_its_tier_reaches_the_step(scene: Scene) -> None:
    scene.status.start_write("0-0", FIVE)
    scene.respond(stand("0-1", (5,)))
    assert not scene.status.wait_reached(FIVE, LOCAL, 0.0)
    scene.respond(stand("0-1", (5,), local=5))
    assert scene.status.wait_reached(FIVE, LOCAL, 0.0) and not scene.status.wait_reached(FIVE, PEER, 0.0)
    scene.respond(stand("0-1", (5,), local=7, peer=7))
    assert scene.status.wait_reached(FIVE, PEER, 0.0), "a later one stands there"


def test_a_save_dropped_before_it_is_stable_is_abandoned(scene: Scene) -> None:
    scene.status.start_write("0-0", FIVE)
    assert not scene.status.abandoned(FIVE), "the agent does not know of it yet"
    scene.respond(stand("0-1", (5,)))
    assert not scene.status.abandoned(FIVE)
    scene.respond(stand("0-1", ()))
    assert scene.status.abandoned(FIVE)
    scene.respond(stand("0-1", (), local=7))
    assert not scene.status.abandoned(FIVE), "a later one stands"


@pytest.mark.parametrize("response", [AgentUnavailable("gone"), "no json", json.dumps({"buffer": "0-0"})])
def test_an_absent_agent_or_invalid_response_frees_no_buffer(scene: Scene, response: Any) -> None:
    scene.respond(stand("0-0"))
    scene.status.start_write("0-0", FIVE)
    scene.respond(response)
    assert scene.status.buffer == ""


def test_the_time_of_a_save_is_measured_once_for_each_tier(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(save_status, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    assert (scene.status.seconds_to(LOCAL), scene.status.seconds_to(PEER)) == (0.0, 0.0)
    scene.status.start_write("0-0", FIVE)
    for moment, response in [
        (101.0, stand("0-1", (5,), local=4, peer=4)),  # This status concerns only other saves.
        (102.0, stand("0-1", (5,), local=5, peer=4)),
        (107.0, stand("0-1", (5,), local=5, peer=5)),
        (150.0, stand("0-1", (5,), local=5, peer=5)),
    ]:
        clock[0] = moment
        scene.respond(response)
    assert (scene.status.seconds_to(LOCAL), scene.status.seconds_to(PEER)) == (2.0, 7.0)


def test_a_superseded_save_is_not_measured(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(save_status, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    scene.status.start_write("0-0", FIVE)
    clock[0] = 400.0
    scene.status.start_write("0-1", Generation(1, 9))
    clock[0] = 403.0
    scene.respond(stand("0-0", (9,), local=9, peer=9))
    assert scene.status.seconds_to(PEER) == 3.0
    for step in range(10, 40):
        scene.status.start_write("0-0", Generation(1, step))
    assert len(scene.status._started) <= save_status._MAX_TIMED


@pytest.mark.parametrize("more", [{}, {"interval": 0}, {"interval": 42}])
def test_the_interval_is_that_of_the_agent(scene: Scene, more: dict[str, int]) -> None:
    scene.respond(json.dumps({**json.loads(stand("0-0")), **more}))
    assert scene.status.interval == more.get("interval", 0)
    scene.respond(stand("0-0", (5,)))
    assert scene.status.interval == 0


def test_a_save_is_due_when_the_agent_requests_one() -> None:
    context = RankContext(
        incarnation=1, socket="/nowhere", tiers=frozenset({"local"}), checkpoint_seconds=300.0
    )
    saves = MemoryCheckpoints(context)
    saves._save.written_at -= 50.0
    assert (saves.interval, saves.due()) == (300.0, False)
    saves._status.interval = 42.0
    assert (saves.interval, saves.due()) == (42.0, True)
    saves._status.interval = 60.0
    assert not saves.due()


def test_copy_time_is_that_of_the_peer_tier_if_copies_exist() -> None:
    saves = MemoryCheckpoints(RankContext(incarnation=1, socket="/nowhere"))
    saves._status._seconds = {LOCAL: 2.0, PEER: 7.0}
    assert saves.copy_seconds == 2.0
    saves._buffers._copies = 1
    assert saves.copy_seconds == 7.0
