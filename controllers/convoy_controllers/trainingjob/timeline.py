"""Splits the time of a recovery into phases, from the fault to the end of the next step.

Each moment comes from the component that sees it: the fault from its rank or the node's agent, the decision
and the pods from the operator, the start of the ranks and their first step from their launchers. A phase
has a duration only if its start and its end are known. A negative duration means that two clocks differ, so
the phase is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from convoy_controllers.views import RankView, SlotView


class RecoveryPhase(StrEnum):
    """A phase of a recovery. If there was only one fault, the phases add up to `TOTAL`."""

    DETECT = "detect"
    """From the fault to the operator's decision."""
    BACK_OFF = "back_off"
    """From the decision to the end of the back-off, for a job that restarts often."""
    FENCE = "fence"
    """From the end of the back-off until the replacement pods were created. They are created when the pods
    at fault have ended or must have ended.
    """
    SCHEDULE = "schedule"
    """From the creation of the replacement pods until the last of them had a node."""
    START = "start"
    """From the placement of the last pod until the processes of all ranks had started."""
    RESTORE = "restore"
    """Time to read the checkpoint, as the slowest rank reports it."""
    FIRST_STEP = "first_step"
    """From the end of the restore to the end of the first step."""
    TOTAL = "total"
    """From the first fault since the last step to the end of the next step. If the time of the fault is not
    known, the phase starts at the first decision.
    """


@dataclass(frozen=True, slots=True)
class Placing:
    """The placement of a pod that was created for an incarnation. All times are Unix seconds by the
    operator's clock.
    """

    created: float
    bound: float = 0.0
    """Unix seconds at which the pod got a node; 0 if it has no node."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The moments of one recovery, in Unix seconds. A moment is 0 if it is not known or did not happen."""

    incarnation: int
    """Number of the incarnation that the recovery reserved. The incarnation that forms has this number or a
    higher one.
    """
    decided: float
    fault_at: float = 0.0
    since: float = 0.0
    """Unix seconds of the first fault since the last step."""
    not_before: float = 0.0
    """Unix seconds at which the back-off ends."""
    created: float = 0.0
    """Unix seconds at which the last replacement pod was created."""
    bound: float = 0.0
    started: float = 0.0
    """Unix seconds at which the process of the last rank started."""
    restore: float = 0.0
    """Seconds that the slowest rank took to read the checkpoint."""
    stepped: float = 0.0


def start(
    before: Timeline | None, *, incarnation: int, decided: float, fault_at: float, not_before: float
) -> Timeline:
    """Return the timeline of a recovery that has just been decided.

    `before` is an earlier recovery after which the job made no step; None if there is none.
    """
    since = before.since if before is not None else fault_at or decided
    return Timeline(incarnation, decided, fault_at, min(since, fault_at or decided), not_before)


def record_placing(before: Placing | None, on_node: bool, now: float) -> Placing:
    """Return the placement of a pod that was just observed. `before` is the placement as observed earlier."""
    known = before or Placing(now)
    return replace(known, bound=now) if on_node and not known.bound else known


def merge_reports(
    timeline: Timeline,
    incarnation: int,
    running: bool,
    views: Mapping[str, SlotView],
    placings: Mapping[str, Placing],
) -> Timeline:
    """Return the timeline with the reports of the incarnation that has formed.

    `running` is True if all its ranks run. `views` are the reports on the job's pods, `placings` the
    placements of the replacement pods, both by pod uid.
    """
    if incarnation < timeline.incarnation:
        return timeline
    members = {uid: view for uid, view in views.items() if view.incarnation == incarnation}
    ranks = [rank for view in members.values() for rank in view.ranks]
    first = max((rank.first_step for rank in ranks), default=0.0)
    if ranks and not timeline.started and (running or first):
        timeline = _started(timeline, ranks, [placings[uid] for uid in members if uid in placings])
    if first and not timeline.stepped:
        # If one rank has ended a step, all ranks have computed it, so the job has made its first step.
        timeline = replace(timeline, stepped=first, restore=max(rank.restore_seconds for rank in ranks))
    return timeline


def _started(timeline: Timeline, ranks: Collection[RankView], made: Collection[Placing]) -> Timeline:
    began = [rank.started for rank in ranks]
    return replace(
        timeline,
        started=max(began) if all(began) else 0.0,
        created=max((one.created for one in made), default=0.0),
        bound=max(one.bound for one in made) if made and all(one.bound for one in made) else 0.0,
    )


def durations(timeline: Timeline) -> dict[RecoveryPhase, float]:
    """Return the seconds of all phases that happened and whose start and end are known."""
    free = max(timeline.decided, timeline.not_before)
    ends = {
        RecoveryPhase.DETECT: (timeline.fault_at, timeline.decided),
        RecoveryPhase.BACK_OFF: (
            timeline.decided if timeline.not_before and timeline.started else 0.0,
            timeline.not_before,
        ),
        RecoveryPhase.FENCE: (free if timeline.created else 0.0, timeline.created),
        RecoveryPhase.SCHEDULE: (timeline.created, timeline.bound),
        # The phase START begins when the last replacement pod got its node. If that time is not known, the
        # phase is left out.
        RecoveryPhase.START: (timeline.bound if timeline.created else free, timeline.started),
        RecoveryPhase.FIRST_STEP: (
            timeline.started + timeline.restore if timeline.started else 0.0,
            timeline.stepped,
        ),
        RecoveryPhase.TOTAL: (timeline.since, timeline.stepped),
    }
    found = {what: end - start for what, (start, end) in ends.items() if start and end and end >= start}
    if timeline.stepped and timeline.restore:
        found[RecoveryPhase.RESTORE] = timeline.restore
    return found
