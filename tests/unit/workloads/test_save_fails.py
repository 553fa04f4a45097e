"""Tests of a save that fails on one of two ranks: the other rank is notified, and a later save of both
succeeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.unit.workloads import rank_processes
from tests.unit.workloads.test_dcp import Agent

from convoy_workloads.runtime.errors import OtherRankFailed
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers import planning, shard
from convoy_workloads.runtime.tiers.buffers import RankBuffers
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints
from convoy_workloads.runtime.tiers.values import UnsavableError

WORLD = 2
SECONDS = 20.0
"""Seconds that a rank waits for the other rank."""


def state(rank: int, own: Any = 1) -> dict[str, Any]:
    return {"weights": torch.ones(1000), f"own{rank}": own}


@dataclass
class Ranks:
    """One of the two ranks, in its own process."""

    rank: int
    agent: Agent
    memory: MemoryCheckpoints

    def fails(self, step: int, own: Any) -> None:
        """Save a state in which rank 1 has the value `own`, which cannot be encoded exactly. Expect that
        the save fails on both ranks.
        """
        wanted, text = (UnsavableError, "^own1: ") if self.rank else (OtherRankFailed, "^rank 1: Unsav.*own1")
        with pytest.raises(wanted, match=text):
            self.memory.start(state(self.rank, own if self.rank else 1), step)

    def saves(self, step: int) -> None:
        assert self.memory.start(state(self.rank), step)
        assert self.memory.settle()
        assert self.agent.saved[-1][0] == step


def at_the_first_save(ranks: Ranks) -> None:
    ranks.fails(1, object())
    assert not ranks.agent.finished_writes, "no buffer was begun"
    ranks.saves(1)


def at_a_later_save(ranks: Ranks) -> None:
    ranks.saves(1)
    ranks.fails(2, object())
    assert [step for step, _ in ranks.agent.saved] == [1]
    ranks.saves(2)


@dataclass
class Journal:
    """Stands in for a rank's journal. It closes its segment or raises `error`."""

    error: Exception | None
    ready: bool = True
    reasons: list[str] = field(default_factory=list)

    def seal(self, *_: Any) -> tuple[str, int]:
        if self.error is not None:
            raise self.error
        return "j0", 64

    def end(self, reason: str) -> None:
        self.ready = False
        self.reasons.append(reason)


def at_a_segment_of_the_journal(ranks: Ranks) -> None:
    ranks.saves(1)
    journal: Any = Journal(UnsavableError("own1: it is odd") if ranks.rank else None)
    ranks.memory._journal_saves._journal = journal
    ranks.fails(2, 1)
    assert journal.reasons
    ranks.memory._journal_saves._journal = None
    ranks.saves(2)


def in_the_middle_of_the_copy(ranks: Ranks) -> None:
    write = shard.write

    def broken(*arguments: Any) -> None:
        raise RuntimeError("the device is gone")

    if ranks.rank:
        finished_writes = ranks.agent.finished_writes
        shard.write = broken
        with pytest.raises(RuntimeError, match="the device is gone"):
            ranks.memory.start(state(1), 1)
        shard.write = write
        ranks.memory.settle()
        assert ranks.agent.questions[-1] == {"type": "abandon", "step": 1}
        assert ranks.agent.finished_writes == finished_writes + 1, "the buffer may be written again"
    else:
        assert ranks.memory.start(state(0), 1) and ranks.memory.settle()
    # Neither rank tries to save this step again, with or without the process group.
    staged = ranks.memory.stage_last(state(ranks.rank), 1)
    assert staged == (None if ranks.rank else Generation(1, 1))
    ranks.saves(2)


def breaks(ranks: Ranks, failing: int, owner: Any, name: str, save: Callable[[int], Any]) -> None:
    """Let `owner.name` raise on rank `failing` during a save.

    Both ranks must fail at once, and the next save must succeed.
    """

    def broken(*_: Any) -> None:
        raise RuntimeError("it is odd")

    sound = getattr(owner, name)
    if ranks.rank == failing:
        setattr(owner, name, broken)
    wanted, text = (RuntimeError, "^it is odd") if ranks.rank == failing else (OtherRankFailed, "it is odd")
    with pytest.raises(wanted, match=text):
        save(1)
    setattr(owner, name, sound)
    ranks.saves(2)


def where_the_state_is_looked_at(ranks: Ranks) -> None:
    breaks(
        ranks, 1, planning.StateSnapshot, "__init__", lambda step: ranks.memory.start(state(ranks.rank), step)
    )


def where_rank_0_deals_out(ranks: Ranks) -> None:
    planner = planning.DefaultSavePlanner
    breaks(ranks, 0, planner, "create_global_plan", lambda step: ranks.memory.start(state(ranks.rank), step))


def where_a_buffer_is_waited_for(ranks: Ranks) -> None:
    breaks(ranks, 1, RankBuffers, "bytes", lambda step: ranks.memory.stage_last(state(ranks.rank), step))


def run(scenario: Callable[[Ranks], None], rank: int, meeting: str) -> None:
    """Run the scenario in this process as rank `rank`."""
    dist.init_process_group(
        "gloo", f"file://{meeting}", timedelta(seconds=SECONDS), world_size=WORLD, rank=rank
    )
    agent: Any = Agent()
    context = RankContext(
        rank=rank, world=WORLD, incarnation=1, socket="/nowhere", tiers=frozenset({"local"})
    )
    memory = MemoryCheckpoints(context, dist.group.WORLD, client=agent, status=agent)
    memory.ready(torch.nn.Linear(100, 10), None)
    memory._worker.join(SECONDS)
    scenario(Ranks(rank, agent, memory))
    dist.barrier()  # Wait for the other rank, which may still need this one.
    os._exit(0)  # Exit at once, because the end of gloo's threads is not part of the test.


@pytest.mark.parametrize(
    "scenario",
    [
        at_the_first_save,
        at_a_later_save,
        at_a_segment_of_the_journal,
        in_the_middle_of_the_copy,
        where_the_state_is_looked_at,
        where_rank_0_deals_out,
        where_a_buffer_is_waited_for,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_a_save_error_on_one_of_two_ranks_ends_neither(
    scenario: Callable[[Ranks], None], tmp_path: Path
) -> None:
    context = rank_processes.context()
    ranks = [
        context.Process(target=run, args=(scenario, rank, str(tmp_path / "meeting"))) for rank in range(WORLD)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(4 * SECONDS)
    late = [one for one in ranks if one.is_alive()]
    for one in late:
        one.kill()
    assert not late and [one.exitcode for one in ranks] == [0, 0]
