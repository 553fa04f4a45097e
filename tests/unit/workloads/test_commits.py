from __future__ import annotations

import threading
from typing import Any

import pytest

from convoy_workloads.local.commit import CommitDesk
from convoy_workloads.runtime.commits import ABANDONED, COMMITTED, PENDING, REFUSED, Commits
from convoy_workloads.runtime.lineage import Generation

G = Generation(2, 30)
PARENT = Generation(1, 20)


class Rank:
    """A rank's Commits, with what it sent and did."""

    def __init__(self, rank: int, agents: bool = True) -> None:
        self.sent: list[dict[str, Any]] = []
        self.sealed = 0
        self.committed: list[Generation] = []
        self.fails: Exception | None = None
        self.commits = Commits(rank, self.committed.append)
        if agents:
            self.commits.connect(self.sent.append)

    def seal(self) -> None:
        if self.fails:
            raise self.fails
        self.sealed += 1

    def prepare(self, complete: bool = True) -> None:
        self.commits.prepare(G, PARENT, self.seal, lambda: complete)

    def hear(self, kind: str, generation: Generation = G, **more: Any) -> None:
        named = {"incarnation": generation.incarnation, "step": generation.step}
        self.commits.on_message({"type": kind, **named, **more})


def test_with_agents_nothing_is_written_before_they_say_so() -> None:
    rank = Rank(0)
    rank.prepare()
    assert rank.sent == [{"type": "prepared", "incarnation": 2, "step": 30, "parent": [1, 20]}]
    assert (rank.sealed, rank.commits.wait(G, 0)) == (0, PENDING)
    rank.hear("commit")
    assert rank.sealed == 1
    assert rank.sent[1:] == [{"type": "recorded", "incarnation": 2, "step": 30}]
    rank.hear("committed")
    assert (rank.committed, rank.commits.wait(G, 0)) == ([G], COMMITTED)


def test_a_repeated_commit_is_answered_and_the_record_written_once() -> None:
    rank = Rank(0)
    rank.prepare()
    rank.hear("commit")
    rank.hear("commit")
    assert rank.sealed == 1
    assert [message["type"] for message in rank.sent] == ["prepared", "recorded", "recorded"]


def test_only_rank_0_writes_the_record() -> None:
    rank = Rank(1)
    rank.prepare()
    rank.hear("commit")
    assert (rank.sealed, len(rank.sent)) == (0, 1)


def test_after_a_redial_what_is_undecided_is_said_again() -> None:
    rank = Rank(0)
    assert rank.commits.pending() == []
    rank.prepare()
    assert [message["type"] for message in rank.commits.pending()] == ["prepared"]
    rank.hear("commit")
    assert [message["type"] for message in rank.commits.pending()] == ["prepared", "recorded"]
    rank.hear("committed")
    assert rank.commits.pending() == []


def test_a_refusal_makes_the_rank_stale() -> None:
    rank = Rank(1)
    rank.prepare()
    rank.hear("refused", seen=3)
    assert rank.commits.stale
    assert rank.commits.wait(G, 0) == REFUSED
    assert rank.committed == []


def test_an_abandoned_generation_is_not_sealed_by_a_late_commit() -> None:
    rank = Rank(0)
    rank.prepare()
    rank.commits.abandon()
    rank.hear("commit")
    assert (rank.sealed, rank.commits.wait(G, 0)) == (0, ABANDONED)


def test_messages_about_another_generation_decide_nothing() -> None:
    rank = Rank(0)
    rank.prepare()
    rank.hear("commit", Generation(2, 29))
    rank.hear("committed", Generation(2, 29))
    rank.commits.on_message({"type": "commit"})
    assert (rank.sealed, rank.commits.wait(G, 0)) == (0, PENDING)


def test_a_record_that_cannot_be_written_is_given_up_loudly(capsys: pytest.CaptureFixture[str]) -> None:
    rank = Rank(0)
    rank.fails = OSError(28, "No space left on device")
    rank.prepare()
    rank.hear("commit")
    assert rank.commits.wait(G, 0) == ABANDONED
    assert "gen-2-30 cannot be sealed" in capsys.readouterr().err


def test_without_agents_rank_0_seals_when_every_part_is_there() -> None:
    rank = Rank(0, agents=False)
    parts = threading.Event()
    saver = threading.Thread(target=lambda: rank.commits.prepare(G, None, rank.seal, parts.is_set))
    saver.start()
    assert (rank.sealed, rank.commits.wait(G, 0)) == (0, PENDING)
    parts.set()
    assert rank.commits.wait(G, 10) == COMMITTED
    saver.join()
    assert (rank.sealed, rank.committed) == (1, [G])


def test_a_share_that_could_not_be_written_is_never_committed() -> None:
    rank = Rank(0)
    rank.commits.give_up(G)
    rank.hear("commit")
    assert (rank.sealed, rank.commits.wait(G, 0)) == (0, ABANDONED)


def message(kind: str, incarnation: int, step: int) -> dict[str, Any]:
    return {"type": kind, "incarnation": incarnation, "step": step}


def test_the_local_desk_commits_once_every_rank_is_prepared() -> None:
    desk = CommitDesk()
    desk.form(1, 2)
    assert desk.take(1, message("prepared", 1, 10)) == []
    assert desk.take(1, message("prepared", 1, 10)) == []
    assert desk.take(0, message("prepared", 1, 10)) == [(0, message("commit", 1, 10))]
    assert desk.take(0, message("recorded", 1, 10)) == [
        (rank, message("committed", 1, 10)) for rank in (0, 1)
    ]
    assert desk.committed == [(1, 10)]
    assert desk.take(1, message("prepared", 1, 10)) == [(1, message("committed", 1, 10))]


def test_the_local_desk_refuses_an_incarnation_that_was_replaced() -> None:
    desk = CommitDesk()
    desk.form(1, 1)
    desk.take(0, message("prepared", 1, 10))
    desk.form(2, 1)
    assert desk.take(0, message("recorded", 1, 10)) == [(0, {**message("refused", 1, 10), "seen": 2})]
    assert desk.committed == []
