"""Tests of the decisions of a rollout: which replicas to create and to delete."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_controllers.servingjob.rollout import Budget, Changes, Goal, Unit, budget, changes, complete
from convoy_crds.servingjob_rollout import Rollout

OLD, NEW = "old", "new"


def up(number: int, revision: str = OLD, **facts: bool) -> Unit:
    return Unit(number, revision, available=True, ready=True, **facts)


def idle(number: int, revision: str = OLD, **facts: bool) -> Unit:
    return Unit(number, revision, **facts)


SURGE, SWAP, BOTH = Budget(3, 1, 0), Budget(3, 0, 1), Budget(4, 1, 1)
ROLL = Goal(NEW, fallback=OLD)
CASES: dict[str, tuple[list[Unit], Goal, Budget, Changes]] = {
    "first start": ([], Goal(NEW), SURGE, Changes((NEW, NEW, NEW))),
    "at rest": ([up(0, NEW), up(1, NEW), up(2, NEW)], ROLL, SURGE, Changes()),
    "surge first": ([up(0), up(1), up(2)], ROLL, SURGE, Changes((NEW,))),
    "new one starts": ([up(0), up(1), up(2), idle(3, NEW)], ROLL, SURGE, Changes()),
    "ready but not settled": (
        [up(0), up(1), up(2), Unit(3, NEW, ready=True)],
        ROLL,
        SURGE,
        Changes(),
    ),
    "new one available": ([up(0), up(1), up(2), up(3, NEW)], ROLL, SURGE, Changes((NEW,), (2,))),
    "without surge": ([up(0), up(1), up(2)], ROLL, SWAP, Changes((NEW,), (2,))),
    "both budgets": ([up(0), up(1), up(2), up(3)], ROLL, BOTH, Changes((NEW, NEW), (3,))),
    "unready old is replaced first": ([up(0), idle(1), up(2)], ROLL, SWAP, Changes((NEW,), (1,))),
    "all old are broken": ([idle(0), idle(1), idle(2)], ROLL, SWAP, Changes((NEW,), (2,))),
    "all old are broken, new one available": (
        [idle(0), idle(1), up(3, NEW)],
        ROLL,
        SWAP,
        Changes((NEW, NEW), (0, 1)),
    ),
    "old one restarts": ([up(0), idle(1), up(2), idle(3, NEW)], ROLL, SURGE, Changes()),
    "surge finds no node": (
        [up(0), idle(1, down=True), up(2), idle(3, NEW, unplaced=True)],
        ROLL,
        SURGE,
        Changes((), (1,)),
    ),
    "paused": ([up(0), up(1), up(2)], Goal(NEW, OLD, held=True), SURGE, Changes()),
    "paused, one lost": ([up(0), up(1)], Goal(NEW, OLD, held=True), SURGE, Changes((OLD,))),
    "halted, scaled up": (
        [up(0), up(1), idle(2, NEW)],
        Goal(NEW, OLD, held=True),
        Budget(4, 1, 0),
        Changes((OLD,)),
    ),
    "scaled up with an unproven revision": (
        [up(0), up(1), idle(2, NEW)],
        ROLL,
        Budget(5, 1, 0),
        Changes((OLD, OLD)),
    ),
    "scaled down": ([up(0, NEW), up(1, NEW), up(2, NEW)], Goal(NEW), Budget(1, 1, 0), Changes((), (1, 2))),
    "scaled down, unready first": (
        [idle(0, NEW), up(1, NEW), up(2, NEW)],
        Goal(NEW),
        Budget(2, 1, 0),
        Changes((), (0,)),
    ),
    "to zero": ([up(0), idle(1, NEW)], ROLL, Budget(0, 0, 0), Changes((), (0, 1))),
    "second edit": (
        [up(0), up(1), up(2), idle(3, "middle")],
        ROLL,
        SURGE,
        Changes((NEW,), (3,)),
    ),
    "revert": (
        [up(0), up(1), idle(3, NEW)],
        Goal(OLD, fallback=OLD),
        SURGE,
        Changes((OLD,), (3,)),
    ),
    "node is drained": ([up(0, NEW, moving=True)], Goal(NEW, NEW), Budget(1, 1, 0), Changes((NEW,))),
    "one of three leaves its node": (
        [up(0, NEW), up(1, NEW, moving=True), up(2, NEW)],
        ROLL,
        SURGE,
        Changes((NEW,)),
    ),
    "the one that leaves is replaced, not the newest": (
        [up(0, NEW), up(1, NEW, moving=True), up(2, NEW), up(3, NEW)],
        ROLL,
        SURGE,
        Changes((), (1,)),
    ),
    "without surge the one that leaves goes first": (
        [up(0, NEW), up(1, NEW, moving=True), up(2, NEW)],
        ROLL,
        SWAP,
        Changes((NEW,), (1,)),
    ),
    "all leave, and all may be unavailable: one stays": (
        [up(0, NEW, moving=True), up(1, NEW, moving=True)],
        ROLL,
        Budget(2, 0, 2),
        Changes((NEW,), (1,)),
    ),
    "scaled down, the one that leaves first": (
        [up(0, NEW), up(1, NEW, moving=True), up(2, NEW)],
        Goal(NEW),
        Budget(2, 1, 0),
        Changes((), (1,)),
    ),
    "paused, one leaves its node": (
        [up(0), up(1, moving=True), up(2, NEW)],
        Goal(NEW, OLD, held=True),
        SURGE,
        Changes((OLD,)),
    ),
    "paused, the one that leaves is replaced": (
        [up(0), up(1, moving=True), up(2, NEW), up(3)],
        Goal(NEW, OLD, held=True),
        SURGE,
        Changes((), (1,)),
    ),
    "drained one is replaced": (
        [up(0, NEW, moving=True), up(1, NEW)],
        Goal(NEW, NEW),
        Budget(1, 1, 0),
        Changes((), (0,)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_next_changes(case: str) -> None:
    units, goal, limits, expected = CASES[case]
    assert changes(units, goal, limits) == expected


@pytest.mark.parametrize(
    ("surge", "unavailable", "desired", "expected"),
    [
        ("25%", 0, 4, Budget(4, 1, 0)),
        ("25%", "25%", 10, Budget(10, 3, 2)),
        (0, "10%", 4, Budget(4, 0, 1)),
        (0, 5, 3, Budget(3, 0, 3)),
        (0, 1, 1, Budget(1, 1, 0)),
        (2, 0, 0, Budget(0, 0, 0)),
    ],
)
def test_budgets(surge: int | str, unavailable: int | str, desired: int, expected: Budget) -> None:
    assert budget(Rollout(max_surge=surge, max_unavailable=unavailable), desired) == expected


def test_a_single_replica_on_a_bad_node_stays_if_no_node_can_hold_another() -> None:
    settings_of_user = Rollout(max_surge=0, max_unavailable=1)
    units = [up(0, NEW, moving=True), idle(1, NEW, unplaced=True)]
    limits = budget(settings_of_user, 1, units, NEW)
    assert limits.minimum == 1 and changes(units, ROLL, limits) == Changes()


def test_a_single_replica_is_deleted_first_only_if_its_surge_finds_no_node() -> None:
    settings_of_user = Rollout(max_surge=0, max_unavailable=1)
    stuck = [up(0), idle(1, NEW, unplaced=True)]
    limits = budget(settings_of_user, 1, stuck, NEW)
    assert limits == Budget(1, 1, 1)
    assert changes(stuck, ROLL, limits) == Changes((), (0,))


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([up(0, NEW), up(1, NEW)], True),
        ([up(0, NEW), Unit(1, NEW, ready=True)], False),
        ([up(0, NEW)], False),
        ([up(0, NEW), up(1, NEW), idle(2)], False),
        ([up(0), up(1)], False),
    ],
)
def test_a_rollout_is_complete_when_every_replica_is_new_and_available(
    units: list[Unit], expected: bool
) -> None:
    assert complete(units, NEW, 2) is expected


ANY_UNIT = st.builds(
    Unit,
    number=st.just(0),
    revision=st.sampled_from([OLD, NEW, "middle"]),
    available=st.booleans(),
    failed=st.booleans(),
    unplaced=st.booleans(),
    down=st.booleans(),
    moving=st.booleans(),
)


def sane(unit: Unit, number: int) -> Unit:
    """Return the unit with a number, without facts that exclude each other."""
    broken = not unit.available
    return Unit(
        number,
        unit.revision,
        available=unit.available,
        ready=unit.available,
        failed=unit.failed and broken,
        unplaced=unit.unplaced and broken,
        down=unit.down and broken,
        moving=unit.moving,
    )


@settings(max_examples=400, deadline=None)
@given(
    drawn=st.lists(ANY_UNIT, max_size=8),
    desired=st.integers(0, 6),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 3),
    held=st.booleans(),
)
def test_no_plan_exceeds_its_budget(
    drawn: list[Unit], desired: int, surge: int, unavailable: int, held: bool
) -> None:
    units = [sane(one, number) for number, one in enumerate(drawn)]
    limits = Budget(desired, surge if desired else 0, min(unavailable, desired) or int(not surge))
    made = changes(units, Goal(NEW, OLD, held), limits)
    left = [one for one in units if one.number not in made.delete]
    taken = [one for one in units if one.available and one.number in made.delete]
    if taken:
        assert sum(one.available for one in left) >= limits.minimum
        only = all(one.revision == NEW for one in units)
        assert not (only and desired) or any(one.available for one in left), "the last one is deleted"
    assert len(left) + len(made.create) <= max(limits.desired + limits.surge, len(left))
    fresh = [one for one in left if one.revision == NEW and not one.moving]
    proven = any(one.available for one in units if one.revision == NEW)
    old = any(one.revision != NEW for one in units)
    if old and not proven and NEW in made.create:
        assert len(fresh) + made.create.count(NEW) <= max(1, limits.surge + limits.unavailable)


@settings(max_examples=200, deadline=None)
@given(
    drawn=st.lists(ANY_UNIT, max_size=8),
    desired=st.integers(0, 6),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 3),
)
def test_a_rollout_to_a_good_revision_ends(
    drawn: list[Unit], desired: int, surge: int, unavailable: int
) -> None:
    """All new replicas become available in the next round. Unready old ones stay so. Some replicas leave
    their nodes.
    """
    units = [sane(one, number) for number, one in enumerate(drawn) if not one.unplaced]
    units = [up(one.number, NEW, moving=one.moving) if one.revision == NEW else one for one in units]
    rollout = Rollout(max_surge=surge, max_unavailable=unavailable or int(not surge))
    number = len(units)
    for _ in range(40):
        limits = budget(rollout, desired, units, NEW)
        made = changes(units, Goal(NEW, OLD), limits)
        if made == Changes():
            break
        units = [one for one in units if one.number not in made.delete]
        for revision in made.create:
            number += 1
            units.append(up(number, revision))
    assert complete(units, NEW, desired) and not any(one.moving for one in units), units


@settings(max_examples=200, deadline=None)
@given(
    desired=st.integers(1, 6),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 3),
    blips=st.lists(st.integers(0, 5), max_size=30),
)
def test_a_broken_revision_never_displaces_more_than_the_budget(
    desired: int, surge: int, unavailable: int, blips: list[int]
) -> None:
    """New replicas never become ready. An old one, chosen by `blips`, is briefly unready in each round."""
    rollout = Rollout(max_surge=surge, max_unavailable=unavailable or int(not surge))
    units = [up(one) for one in range(desired)]
    number = desired
    for blip in blips:
        limits = budget(rollout, desired, units, NEW)
        seen = [
            idle(one.number) if one.revision == OLD and position == blip else one
            for position, one in enumerate(units)
        ]
        made = changes(seen, Goal(NEW, OLD), limits)
        units = [one for one in units if one.number not in made.delete]
        for revision in made.create:
            number += 1
            units.append(up(number, OLD) if revision == OLD else idle(number, NEW))
        good = sum(one.revision == OLD for one in units)
        assert good >= min(limits.minimum, desired - max(0, 1 - limits.surge))
        assert good >= 1 or desired == limits.unavailable
