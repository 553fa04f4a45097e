from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.runtime.step_consensus import StepConsensus, StepRequest, decode, merge

WISHES = st.builds(StepRequest, save=st.booleans(), stop=st.booleans(), busy=st.booleans())


@given(st.lists(WISHES, min_size=1, max_size=8))
def test_a_request_of_one_rank_applies_to_all_ranks(requests: list[StepRequest]) -> None:
    merged = merge(requests)
    assert merged == StepRequest(
        save=any(one.save for one in requests),
        stop=any(one.stop for one in requests),
        busy=any(one.busy for one in requests),
    )
    assert decode(merged.encode()) == merged


class Lockstep:
    """Stands in for the maximum over all ranks. The ranks run one after another, so a result is known once
    all have contributed.
    """

    def __init__(self, world: int) -> None:
        self._world = world
        self._rounds: list[list[Sequence[int]]] = []
        self._given = [0] * world

    def of(self, rank: int) -> Callable[[Sequence[int]], Callable[[], Sequence[int]]]:
        def start(numbers: Sequence[int]) -> Callable[[], Sequence[int]]:
            turn = self._given[rank]
            self._given[rank] += 1
            if turn == len(self._rounds):
                self._rounds.append([])
            self._rounds[turn].append(numbers)

            def wait() -> Sequence[int]:
                assert len(self._rounds[turn]) == self._world, "a collective that not all ranks entered"
                return [max(column) for column in zip(*self._rounds[turn], strict=True)]

            return wait

        return start


@given(
    st.lists(st.integers(min_value=0, max_value=12), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_all_ranks_stop_after_the_same_step(stop_steps: list[int], due: list[bool]) -> None:
    """`stop_steps[r]`: the step before which rank r gets SIGTERM (12: never). `due[s]`: True if rank 0
    requests a save at step s.
    """
    world = len(stop_steps)
    lockstep = Lockstep(world)
    gates = [StepConsensus(lockstep.of(rank)) for rank in range(world)]
    stopped: list[int | None] = [None] * world
    saves: list[list[int]] = [[] for _ in range(world)]
    for step in range(12):
        running = [rank for rank in range(world) if stopped[rank] is None]
        for rank in running:
            gates[rank].start(StepRequest(save=rank == 0 and due[step], stop=stop_steps[rank] <= step))
        for rank in running:
            decision = gates[rank].decision()
            assert gates[rank].decision() == decision
            if decision.save:
                saves[rank].append(step)
            if decision.stop:
                stopped[rank] = step
    expected = min(stop_steps)
    assert stopped == [expected if expected < 12 else None] * world
    assert all(one == saves[0] for one in saves)


def test_the_request_of_a_single_rank_is_the_decision() -> None:
    consensus = StepConsensus()
    consensus.start(StepRequest(stop=True))
    assert consensus.decision() == StepRequest(stop=True)


def test_starting_a_step_before_the_previous_decision_is_an_error() -> None:
    consensus = StepConsensus()
    consensus.start(StepRequest())
    with pytest.raises(RuntimeError, match="was not called for the previous step"):
        consensus.start(StepRequest())
