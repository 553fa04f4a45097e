"""Tests of the alignment protocol under random schedules, and with faults that the schedules must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cases import cases

from convoy_workloads.data.alignment import Alignment
from convoy_workloads.data.alignment_messages import AlignedStep, AlignmentSettings, Plan, Proposal
from convoy_workloads.engines.odb.schedules import BrokenPromise, Schedule, play, random_schedule


def test_every_random_schedule_ends_within_the_bound_and_keeps_the_promises() -> None:
    played = [(schedule, play(schedule)) for schedule in map(random_schedule, range(cases(500)))]
    # The schedules reach every part of the protocol.
    assert any(outcome.failed for _, outcome in played)
    assert any(outcome.steps > 20 for _, outcome in played)
    assert {schedule.settings.mode for schedule, _ in played} == {"join", "quota"}


def test_a_schedule_depends_only_on_its_seed() -> None:
    assert play(random_schedule(7)) == play(random_schedule(7))


def own_target(alignment: Alignment, proposals: list[Proposal]) -> None:
    """Each rank takes as many steps as it has groups."""
    RECEIVE(alignment, proposals)
    alignment._target = min(alignment._target, len(alignment._groups))


def dropped_tail(alignment: Alignment) -> Plan:
    """A rank that has more groups than steps drops the rest."""
    plan = PLAN(alignment)
    for sample in plan.pool:
        del alignment._pool[sample]
    return plan


def early_end(alignment: Alignment, proposals: list[Proposal]) -> None:
    """The epoch ends as soon as one rank has no more samples."""
    RECEIVE(alignment, proposals)
    alignment.ended |= any(one.drained and not one.samples for one in proposals)


def own_sum(alignment: Alignment) -> AlignedStep | None:
    """A rank counts only its own terms of the loss."""
    step = NEXT(alignment)
    return step and AlignedStep(step.samples, step.weight, step.all_samples, step.weight)


RECEIVE, PLAN, NEXT = Alignment.receive_proposals, Alignment.plan, Alignment.next_step


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("receive_proposals", own_target),
        ("plan", dropped_tail),
        ("receive_proposals", early_end),
        ("next_step", own_sum),
    ],
)
def test_the_schedules_find_a_protocol_that_is_broken_on_purpose(
    name: str, fault: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Alignment, name, fault)
    with pytest.raises((BrokenPromise, IndexError, KeyError)):
        for seed in range(400):
            play(random_schedule(seed))


def test_a_budget_that_is_exceeded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "convoy_workloads.data.alignment.group_greedily", lambda lengths, budget: [list(range(len(lengths)))]
    )
    with pytest.raises(BrokenPromise, match="padded tokens within the budget"):
        for seed in range(400):
            play(random_schedule(seed))


@pytest.mark.parametrize("shares", [[[], [5] * 40], [[5] * 4, [5] * 40], [[], []], [[0, 0], [3]]])
def test_ranks_with_no_samples_and_with_ten_times_as_many_end_together(shares: list[list[int]]) -> None:
    settings = AlignmentSettings(budget=40, window=8)
    outcome = play(Schedule(1, settings, shares, [1.0, 1.0]))
    used = sorted(sample for steps in outcome.samples for step in steps for sample in step)
    lengths = [length for share in shares for length in share]
    assert used == [sample for sample, length in enumerate(lengths) if length]
    assert outcome.rounds <= settings.round_limit(max(map(len, shares)), 2)


def test_a_window_that_grows_delays_no_later_round() -> None:
    settings = AlignmentSettings(budget=40, window=16, warmup_rounds=3)
    assert [settings.window_of(number) for number in range(5)] == [2, 4, 8, 16, 16]


def test_groups_move_to_the_rank_with_fewer_by_splits() -> None:
    """One rank's samples fill four batches, the other's fit into one."""
    settings = AlignmentSettings(budget=40, window=8)
    outcome = play(Schedule(3, settings, [[40, 40, 40, 40], [1, 1, 1, 1]], [1.0, 1.0]))
    assert outcome.steps == 4
    assert [len(step) for step in outcome.samples[1]] == [1, 1, 1, 1]
