"""What the time of a recovery went to, from the fault to the end of the next step.

A recovery is told in moments, each by whoever saw it: the fault by its rank or its node's agent, decision and
pods by the operator, the start of the ranks and their first step by their launchers. A length is known once
both its ends are. One that would be below 0 says that two clocks differ, and is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from convoy_controllers.views import RankView, SlotView


class RecoveryPhase(StrEnum):
    """A part of a recovery; all but the last one sum up to it where one fault came alone."""

    DETECT = "detect"
    """From the fault to the operator's decision."""
    BACK_OFF = "back_off"
    """From there to the end of the pause that a job has to make which restarts often."""
    FENCE = "fence"
    """From there until the replacements were made: what was at fault had ended, or must have."""
    SCHEDULE = "schedule"
    """From there until the last of them had a node."""
    START = "start"
    """From there until the processes of all ranks had begun."""
    RESTORE = "restore"
    """Of the time since then: the reading of the checkpoint, as the slowest rank tells."""
    FIRST_STEP = "first_step"
    """The rest of it, up to the end of the first step."""
    TOTAL = "total"
    """From the first fault since the last step, or else from the first decision, to the end of that step."""


@dataclass(frozen=True, slots=True)
class Placing:
    """A pod that was made for an incarnation. Unix seconds, as the operator saw it."""

    created: float
    bound: float = 0.0
    """When it had a node; 0 before."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The moments of one recovery, in Unix seconds; 0 for what is not known or did not happen."""

    incarnation: int
    """That it reserved; what forms has this number or a higher one."""
    decided: float
    fault_at: float = 0.0
    since: float = 0.0
    """The first fault since the last step."""
    not_before: float = 0.0
    """Until when nothing was to form."""
    created: float = 0.0
    """When the last of those that take part was made."""
    bound: float = 0.0
    started: float = 0.0
    """When the process of the last rank began."""
    restore: float = 0.0
    """Seconds."""
    stepped: float = 0.0


def start(
    before: Timeline | None, *, incarnation: int, decided: float, fault_at: float, not_before: float
) -> Timeline:
    """The recovery from a fault that has just been decided on. `before`: one that has come to no step."""
    since = before.since if before is not None else fault_at or decided
    return Timeline(incarnation, decided, fault_at, min(since, fault_at or decided), not_before)


def record_placing(before: Placing | None, on_node: bool, now: float) -> Placing:
    """A pod that was made for the recovery is seen."""
    known = before or Placing(now)
    return replace(known, bound=now) if on_node and not known.bound else known


def merge_reports(
    timeline: Timeline,
    incarnation: int,
    running: bool,
    views: Mapping[str, SlotView],
    placings: Mapping[str, Placing],
) -> Timeline:
    """What the ranks of the incarnation that has formed tell. `running`: all of them run; by pod uid `views`
    of the job's pods, and `placings` of those that were made for the recovery.
    """
    if incarnation < timeline.incarnation:
        return timeline
    members = {uid: view for uid, view in views.items() if view.incarnation == incarnation}
    ranks = [rank for view in members.values() for rank in view.ranks]
    first = max((rank.first_step for rank in ranks), default=0.0)
    if ranks and not timeline.started and (running or first):
        timeline = _started(timeline, ranks, [placings[uid] for uid in members if uid in placings])
    if first and not timeline.stepped:
        # A step that one rank has ended, all have computed.
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
    """Seconds of what is known and happened."""
    free = max(timeline.decided, timeline.not_before)
    ends = {
        RecoveryPhase.DETECT: (timeline.fault_at, timeline.decided),
        RecoveryPhase.BACK_OFF: (
            timeline.decided if timeline.not_before and timeline.started else 0.0,
            timeline.not_before,
        ),
        RecoveryPhase.FENCE: (free if timeline.created else 0.0, timeline.created),
        RecoveryPhase.SCHEDULE: (timeline.created, timeline.bound),
        # A replacement without a known node leaves open where the start began.
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
