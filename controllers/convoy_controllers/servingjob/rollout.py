"""Decides which replicas of one role to create and to delete. One function has the only deletion path.

With D desired replicas, a surge of S and U unavailable replicas:

- At most D + S replicas exist. Replicas that are being deleted do not count.
- Only replicas that have been ready, and listed by the Service, for the endpoint lag count as available. A
  deletion leaves at least D - U of them, so the deletion of unready replicas costs no budget.
- Until a replica of the target revision is available, at most max(1, S + U) replicas run that revision. A
  broken revision can therefore never displace the replicas that serve.
- A replica that leaves its node (`moving`) is replaced like an old one, even while the rollout is paused. The
  last available replica is never deleted for that.

The decision depends only on the live replicas. A revert, or another edit during a rollout, is an ordinary
rollout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from convoy_crds.servingjob_rollout import Rollout, share


@dataclass(frozen=True, slots=True)
class Unit:
    """A replica, as far as a rollout depends on it."""

    number: int
    revision: str
    available: bool = False
    """True if the replica has been ready, and listed by the Service, for the endpoint lag."""
    ready: bool = False
    failed: bool = False
    """True if the replica has used up its restarts, or cannot get its model."""
    unplaced: bool = False
    """True if no node can hold one of the replica's pods now."""
    down: bool = False
    """True if the replica has been unready for long, or has failed."""
    moving: bool = False
    """True if the replica must leave its node."""
    drained: bool = False
    """True if an administrator has cordoned that node."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The number of replicas of a role, and the limits for a rollout."""

    desired: int
    surge: int
    unavailable: int

    @property
    def minimum(self) -> int:
        """Return the number of available replicas that a rollout must leave."""
        return max(0, self.desired - self.unavailable)


@dataclass(frozen=True, slots=True)
class Goal:
    """The revision to which a role rolls, and the revision for replicas that must not run it yet."""

    target: str
    fallback: str = ""
    """Revision that last ran in all replicas; empty if there is none or if it is not stored any more."""
    held: bool = False
    """True if the rollout is paused or halted."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The replicas to create and to delete."""

    create: tuple[str, ...] = ()
    """Revision of each replica to create."""
    delete: tuple[int, ...] = ()
    """Numbers of the replicas to delete."""


def budget(rollout: Rollout, desired: int, units: Iterable[Unit] = (), target: str = "") -> Budget:
    """Return the budget of a role.

    A single replica is replaced by a surge first. If no node can hold the surge, the replica may be deleted
    before, as far as the spec allows.
    """
    if desired == 0:
        return Budget(0, 0, 0)
    surge = share(rollout.max_surge, desired, up=True)
    unavailable = share(rollout.max_unavailable, desired, up=False)
    if desired == 1:
        every = list(units)
        stuck = any(one.unplaced and one.revision == target for one in every)
        stuck = stuck and any(one.revision != target for one in every)
        return Budget(desired, max(1, surge), min(unavailable, 1) if stuck else 0)
    if not surge and not unavailable:
        unavailable = 1
    return Budget(desired, surge, min(unavailable, desired))


def changes(units: Sequence[Unit], goal: Goal, limits: Budget) -> Changes:
    """Return the replicas of one role to create and to delete now."""
    if goal.held and any(one.revision != goal.target for one in units):
        return _held(units, goal, limits)
    return _rolling(units, goal, limits)


def _old(unit: Unit, goal: Goal) -> bool:
    return unit.revision != goal.target or unit.moving


def _held(units: Sequence[Unit], goal: Goal, limits: Budget) -> Changes:
    """Keep the number of replicas while the rollout is paused or halted, and replace those that leave their
    nodes.
    """
    leaving = [one for one in units if one.moving]
    begun = any(one.revision == goal.target for one in units)
    most = limits.desired + (limits.surge if begun or leaving else 0)
    gone = _excess(units, goal, limits, most)
    left = [one for one in units if one.number not in gone]
    gone |= {one.number for one in left if one.moving and not one.ready}
    spare = _spare(left, goal, limits, fresh=False)
    gone |= {number for number in spare if any(one.number == number for one in leaving)}
    left = [one for one in units if one.number not in gone]
    short = max(0, limits.desired - sum(not one.moving for one in left))
    created = min(short, max(0, most - len(left)))
    return Changes((goal.fallback or goal.target,) * created, tuple(sorted(gone)))


def _rolling(units: Sequence[Unit], goal: Goal, limits: Budget) -> Changes:
    old = [one for one in units if _old(one, goal)]
    fresh = [one for one in units if not _old(one, goal)]
    proven = any(one.available for one in fresh)
    most = limits.desired + (limits.surge if old else 0)
    cap = limits.desired if proven or not old else _cap(limits)
    missing = max(0, min(cap, limits.desired) - len(fresh))

    gone = _unready_old(old, fresh, proven, missing - (most - len(units)), goal)
    gone |= _excess([one for one in units if one.number not in gone], goal, limits, most)
    left = [one for one in units if one.number not in gone]
    surplus = len([one for one in left if not _old(one, goal)]) - limits.desired
    gone |= _first(_spare(left, goal, limits, fresh=True), surplus)
    left = [one for one in units if one.number not in gone]
    gone |= _first(_spare(left, goal, limits, fresh=False), len(old))

    room = most - (len(units) - len(gone))
    created = max(0, min(missing, room))
    short = max(0, limits.desired - (len(units) - len(gone)) - created) if not proven else 0
    filler = goal.fallback if goal.fallback != goal.target else ""
    return Changes((goal.target,) * created + ((filler,) * short if filler else ()), tuple(sorted(gone)))


def _cap(limits: Budget) -> int:
    """Return how many replicas a revision may have before its first replica is available."""
    return max(1, limits.surge + limits.unavailable)


def _unready_old(
    old: Sequence[Unit], fresh: Sequence[Unit], proven: bool, needed: int, goal: Goal
) -> set[int]:
    """Return old replicas that serve no requests and make room for new ones. They cost no budget."""
    idle = sorted((one for one in old if not one.ready), key=lambda one: _worst_first(one, goal))
    if proven:
        return {one.number for one in idle}
    chosen = {one.number for one in idle[: max(0, needed)]}
    blocked = sum(one.unplaced for one in fresh)
    down = [one.number for one in idle if one.down and one.number not in chosen]
    return chosen | set(down[:blocked])


def _excess(units: Sequence[Unit], goal: Goal, limits: Budget, most: int) -> set[int]:
    """Return replicas above the number `most`, such as after the desired number was lowered."""
    number = len(units) - most
    if number <= 0:
        return set()
    idle = sorted((one for one in units if not one.ready), key=lambda one: _worst_first(one, goal))
    chosen = [one.number for one in idle[:number]]
    rest = [one for one in units if one.number not in chosen]
    spare = [*_spare(rest, goal, limits, fresh=False), *_spare(rest, goal, limits, fresh=True)]
    room = max(0, sum(one.available for one in units) - limits.minimum)
    return {*chosen, *spare[: min(number - len(chosen), room)]}


def _spare(units: Sequence[Unit], goal: Goal, limits: Budget, *, fresh: bool) -> list[int]:
    """Return the numbers of replicas that may be deleted although they may serve, the worst first.

    A replica that is ready but not available yet costs budget too, because requests may already reach it.
    """
    chosen = sorted(
        (one for one in units if _old(one, goal) is not fresh), key=lambda one: _worst_first(one, goal)
    )
    available = sum(one.available for one in units)
    found: list[int] = []
    for one in chosen:
        cost = 1 if one.available else 0
        stays = one.moving and (goal.held or one.revision == goal.target)
        least = max(limits.minimum, min(1, limits.desired)) if stays else limits.minimum
        if one.ready and available - cost < least:
            continue
        if not one.ready and not fresh:
            continue
        available -= cost
        found.append(one.number)
    return found


def _first(numbers: Sequence[int], count: int) -> set[int]:
    return set(numbers[: max(0, count)])


def _worst_first(unit: Unit, goal: Goal) -> tuple[bool, bool, bool, bool, bool, int]:
    """Return the sort key for deletions: unready before ready, failed first, then those that leave their
    nodes, then the newest.
    """
    serves = unit.available, unit.ready
    return *serves, not unit.failed, not unit.moving, unit.revision == goal.fallback, -unit.number


def complete(units: Sequence[Unit], target: str, desired: int) -> bool:
    """Return True if all desired replicas run the target revision and are available, and no other exists."""
    fresh = [one for one in units if one.revision == target]
    return len(units) == len(fresh) == desired and all(one.available for one in fresh)
