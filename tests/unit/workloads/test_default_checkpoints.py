"""Tests of checkpoints that a job does not ask for. Their faults must not end the program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.workloads.test_dcp import Agent, agent

from convoy_workloads.runtime import checkpoints
from convoy_workloads.runtime.checkpointer import usable
from convoy_workloads.runtime.rank_context import RankContext, from_environment
from convoy_workloads.runtime.tiers import buffers, shard
from convoy_workloads.runtime.tiers.by_default import DefaultCheckpoints
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints
from convoy_workloads.runtime.tiers.restoring import RestoreSession

__all__ = ["agent"]

STATE = {"weights": torch.ones(1000)}
CONTEXT = RankContext(incarnation=1, socket="/nowhere", tiers=frozenset({"local"}), by_default=True)


def opened(agent: Agent) -> DefaultCheckpoints:
    stand_in: Any = agent
    return DefaultCheckpoints(CONTEXT, client=stand_in, status=stand_in)


@pytest.fixture
def memory(agent: Agent) -> DefaultCheckpoints:
    found = opened(agent)
    found.ready(torch.nn.Linear(100, 10), None)
    found._worker.join(20)
    return found


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "RETRY_SECONDS", 0.0)


def test_a_program_that_never_restores_saves_nothing_and_gets_no_error(agent: Agent) -> None:
    found = opened(agent)
    assert usable(found) is None and not found.due() and found.busy()
    assert agent.questions == [], "the agent is not even asked"


def test_a_program_that_restores_saves_as_usual(memory: DefaultCheckpoints, agent: Agent) -> None:
    assert usable(memory) is memory and not memory.busy()
    assert memory.start(STATE, 1) and memory.settle()
    assert [step for step, _ in agent.saved] == [1]
    assert memory.finish_last(memory.stage_last(STATE, 2))
    assert [step for step, _ in agent.saved] == [1, 2]


@pytest.mark.parametrize("fault", ["value", "write"])
def test_a_fault_turns_the_saves_off(
    memory: DefaultCheckpoints,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: str,
) -> None:
    state: dict[str, Any] = {"weights": STATE["weights"], "what": object()} if fault == "value" else STATE
    if fault == "write":

        def fail(*_: Any) -> None:
            raise MemoryError("no")

        monkeypatch.setattr(shard, "write", fail)
    assert memory.start(state, 1) is False
    assert not memory.due() and memory.busy(), "a busy rank keeps all ranks from saving"
    staged = memory.stage_last(STATE, 2, end=True)
    assert staged is None and not memory.finish_last(staged)
    assert capsys.readouterr().err.count("SAVES NO CHECKPOINTS BY DEFAULT") == 1


def test_a_job_that_asks_for_checkpoints_gets_the_error(agent: Agent) -> None:
    stand_in: Any = agent
    strict = MemoryCheckpoints(CONTEXT, client=stand_in, status=stand_in)
    with pytest.raises(Exception, match=r"job\.restore"):
        strict.start(STATE, 1)
    assert usable(strict) is strict


@pytest.mark.usefixtures("no_pause")
def test_memory_that_went_to_another_job_is_requested_again(memory: DefaultCheckpoints, agent: Agent) -> None:
    assert memory.start(STATE, 1) and memory.settle()
    agent.releases = 1
    assert memory.busy(), "the old buffers must not be written any more"
    memory._worker.join(20)
    assert not memory.busy() and memory.start(STATE, 2) and memory.settle()
    reserves = [one for one in agent.questions if one["type"] == "reserve"]
    assert len(reserves) >= 2 and [step for step, _ in agent.saved] == [1, 2]


def test_the_agent_may_change_the_number_of_copies(memory: DefaultCheckpoints, agent: Agent) -> None:
    assert memory._buffers.copies == 0
    agent.copies = 1
    assert memory._buffers.copies == 1


@pytest.mark.parametrize(
    "answer", [{"type": "refused", "why": "7 more bytes"}, {"type": "failed", "why": "7", "memory": True}]
)
def test_without_memory_for_the_restore_the_job_starts_and_saves_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    monkeypatch.setattr(Agent, "_restore", lambda self, question: (dict(answer), []), raising=True)
    found = opened(agent)
    assert found.choose() is None
    found.ready(torch.nn.Linear(100, 10), None)
    assert not found.due() and found.busy() and usable(found) is None
    assert agent.questions[-1] == {"type": "restored", "declined": True}


def test_a_shard_that_does_not_fit_releases_the_others(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.shards = {"0": b"x"}
    refusal = ({"type": "failed", "why": "no memory for restored shard", "memory": True}, [])
    monkeypatch.setattr(Agent, "_shard", lambda self, question: refusal)
    stand_in: Any = agent
    session = RestoreSession(stand_in, 0, by_default=True)
    assert session.choose() is None and session.declined and session.shards == []


def test_other_failures_of_a_restore_are_retried_as_ever(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart may find the checkpoint. Without it the job would start at step 0."""
    monkeypatch.setattr(Agent, "_restore", lambda self, question: ({"type": "failed", "why": "?"}, []))
    with pytest.raises(Exception, match="offers no checkpoint"):
        opened(agent).choose()


@pytest.mark.parametrize(
    ("values", "memory"),
    [
        ({"CONVOY_CHECKPOINT_BY_DEFAULT": "true"}, True),
        ({"CONVOY_CHECKPOINT_BY_DEFAULT": "true", "CONVOY_CHECKPOINT_DIR": "/data"}, False),
        ({"CONVOY_CHECKPOINT_DIR": "/data"}, True),
    ],
)
def test_a_folder_takes_precedence_over_the_default(values: dict[str, str], memory: bool) -> None:
    given = {"CONVOY_INCARNATION": "1", "CONVOY_SOCKET": "s", "CONVOY_CHECKPOINT_TIERS": "local,peer"}
    assert from_environment({**given, **values}).in_memory is memory


def test_the_environment_chooses_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for name in ("DefaultCheckpoints", "MemoryCheckpoints"):
        monkeypatch.setattr(checkpoints, name, lambda *_, name=name, **__: made.append(name))
    checkpoints.open_checkpoints(CONTEXT)
    checkpoints.open_checkpoints(RankContext(incarnation=1, socket="s", tiers=frozenset({"local"})))
    assert made == ["DefaultCheckpoints", "MemoryCheckpoints"]
