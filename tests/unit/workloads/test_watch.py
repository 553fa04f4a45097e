"""Which slot a rank may write, by what its agent says and when it was asked."""

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
from convoy_workloads.runtime.place import Place
from convoy_workloads.runtime.tiers import watch
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints
from convoy_workloads.runtime.tiers.line import Away
from convoy_workloads.runtime.tiers.watch import LOCAL, PEER, Watch

SECONDS = 20.0
FIVE = Generation(1, 5)


class Line:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: queue.Queue[str] = queue.Queue()
        self.answers: queue.Queue[Any] = queue.Queue()
        self.over = threading.Event()

    def ask(self, question: Any, seconds: float) -> tuple[Any, list[int]]:
        self.asked.put(question["known"])
        found = self.answers.get()
        if found is None:
            # The thread that asks has no end; the test has.
            self.over.set()
            threading.Event().wait()
        if isinstance(found, Exception):
            raise found
        return {"type": "stand", "stand": found}, []


def stand(slot: str = "", holds: tuple[int, ...] = (), **marks: int) -> str:
    """What the agent of incarnation 1 says."""
    return json.dumps(
        {
            "slot": slot,
            "holds": [[1, step] for step in holds],
            "uploads": [],
            "marks": {tier: [1, step] for tier, step in marks.items()},
        }
    )


class Scene:
    def __init__(self) -> None:
        self.line = Line()
        self.watch = Watch(self.line)  # type: ignore[arg-type]
        self.watch.start()
        self.asked()

    def asked(self) -> str:
        return self.line.asked.get(timeout=SECONDS)

    def say(self, answer: Any) -> str:
        """Answers the question that is open; what the next one knows."""
        self.line.answers.put(answer)
        return self.asked()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.line.answers.put(None)
    assert scene.line.over.wait(SECONDS)


def test_the_answer_is_what_the_next_question_knows(scene: Scene) -> None:
    first = stand("0-0")
    assert scene.say(first) == first
    assert scene.watch.slot == "0-0" and scene.watch.wait_slot(0.0)


def test_a_slot_that_is_written_is_free_by_no_answer_to_an_earlier_question(scene: Scene) -> None:
    scene.say(stand("0-0"))
    scene.watch.writing("0-0", FIVE)
    assert scene.watch.slot == ""
    # Asked before the agent knew of the save, answered late.
    scene.say(stand("0-0", local=3))
    assert scene.watch.slot == ""
    scene.say(stand("0-1", local=4))
    assert scene.watch.slot == "0-1", "another one is free for all that"


def test_what_the_agent_holds_tells_that_it_knows(scene: Scene) -> None:
    scene.say(stand("0-0"))
    scene.watch.writing("0-0", FIVE)
    scene.say(stand("", (5,)))
    scene.say(stand("0-0", (), local=9, peer=9))
    assert scene.watch.slot == "0-0"


def test_a_save_that_failed_frees_its_slot_with_the_next_question(scene: Scene) -> None:
    scene.say(stand("0-0"))
    scene.watch.writing("0-0", FIVE)
    scene.watch.written()
    scene.say(stand("0-0", local=1))  # was asked before
    assert scene.watch.slot == ""
    scene.say(stand("0-0", local=2))
    assert scene.watch.slot == "0-0"
    assert not scene.watch.settled(FIVE, LOCAL, SECONDS), "nobody holds it: no need to wait"


def test_a_generation_settles_when_it_stands(scene: Scene) -> None:
    scene.watch.writing("0-0", FIVE)
    scene.say(stand("0-1", (5,)))
    assert not scene.watch.settled(FIVE, LOCAL, 0.0)
    scene.say(stand("0-1", (5,), local=5))
    assert scene.watch.settled(FIVE, LOCAL, 0.0) and not scene.watch.settled(FIVE, PEER, 0.0)
    scene.say(stand("0-1", (5,), local=7, peer=7))
    assert scene.watch.settled(FIVE, PEER, 0.0), "a later one stands there"


def test_what_is_kept_no_more_before_it_stood_was_given_up(scene: Scene) -> None:
    scene.watch.writing("0-0", FIVE)
    assert not scene.watch.given_up(FIVE), "the agent does not know of it yet"
    scene.say(stand("0-1", (5,)))
    assert not scene.watch.given_up(FIVE)
    scene.say(stand("0-1", ()))
    assert scene.watch.given_up(FIVE)
    scene.say(stand("0-1", (), local=7))
    assert not scene.watch.given_up(FIVE), "a later one stands"


@pytest.mark.parametrize("answer", [Away("gone"), "no json", json.dumps({"slot": "0-0"})])
def test_an_agent_that_is_away_or_talks_nonsense_frees_nothing(scene: Scene, answer: Any) -> None:
    scene.say(stand("0-0"))
    scene.watch.writing("0-0", FIVE)
    scene.say(answer)
    assert scene.watch.slot == ""


def test_the_time_of_a_save_is_taken_once_for_each_tier(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    assert (scene.watch.took(LOCAL), scene.watch.took(PEER)) == (0.0, 0.0)
    scene.watch.writing("0-0", FIVE)
    for moment, said in [
        (101.0, stand("0-1", (5,), local=4, peer=4)),  # of others
        (102.0, stand("0-1", (5,), local=5, peer=4)),
        (107.0, stand("0-1", (5,), local=5, peer=5)),
        (150.0, stand("0-1", (5,), local=5, peer=5)),
    ]:
        clock[0] = moment
        scene.say(said)
    assert (scene.watch.took(LOCAL), scene.watch.took(PEER)) == (2.0, 7.0)


def test_a_save_that_was_overtaken_tells_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    scene.watch.writing("0-0", FIVE)
    clock[0] = 400.0
    scene.watch.writing("0-1", Generation(1, 9))
    clock[0] = 403.0
    scene.say(stand("0-0", (9,), local=9, peer=9))
    assert scene.watch.took(PEER) == 3.0
    for step in range(10, 40):
        scene.watch.writing("0-0", Generation(1, step))
    assert len(scene.watch._began) <= watch._TIMED


@pytest.mark.parametrize("more", [{}, {"interval": 0}, {"interval": 42}])
def test_the_interval_is_what_the_agent_says(scene: Scene, more: dict[str, int]) -> None:
    scene.say(json.dumps({**json.loads(stand("0-0")), **more}))
    assert scene.watch.interval == more.get("interval", 0)
    scene.say(stand("0-0", (5,)))
    assert scene.watch.interval == 0


def test_a_save_is_due_when_the_agent_says_so() -> None:
    place = Place(incarnation=1, socket="/nowhere", tiers=frozenset({"local"}), checkpoint_seconds=300.0)
    saves = MemoryCheckpoints(place)
    saves._flight.at -= 50.0
    assert (saves.interval, saves.due()) == (300.0, False)
    saves._watch.interval = 42.0
    assert (saves.interval, saves.due()) == (42.0, True)
    saves._watch.interval = 60.0
    assert not saves.due()


def test_copies_count_where_there_are_any() -> None:
    saves = MemoryCheckpoints(Place(incarnation=1, socket="/nowhere"))
    saves._watch._took = {LOCAL: 2.0, PEER: 7.0}
    assert saves.copy_seconds == 2.0
    saves._slots.copies = 1
    assert saves.copy_seconds == 7.0
