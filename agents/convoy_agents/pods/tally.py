"""What of a pod's ranks is counted: their starts, their ends, and that they began anew in their pod. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_agents.pods.messages import LauncherHello, RankUpdate
from convoy_agents.pods.state import Event, PodState

STATES = ("STARTING", "RUNNING", "EXITED")
EXITS = ("done", "failed", "killed", "out_of_memory", "hung", "command_not_found")
"""How a rank ends."""
STARTS = ("fresh", "in_place")
"""How ranks start: as the first ones of their pod, or anew in it, where a process may be warm."""


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """The newest incarnation that a launcher was told to start."""

    incarnation: int
    at: float
    """Unix seconds."""
    in_place: bool
    """Whether its ranks ran in an earlier one."""

    @property
    def kind(self) -> str:
        """One of `STARTS`."""
        return STARTS[self.in_place]


def latest_order(
    before: LaunchOrder | None, event: Event, older: PodState, newer: PodState, now: float
) -> LaunchOrder | None:
    """What the launcher has been told once an event has made `newer` of `older`."""
    known = event.incarnation if isinstance(event, LauncherHello) else older.launcher_incarnation
    return (
        LaunchOrder(newer.launcher_incarnation, now, in_place=known > 0)
        if newer.launcher_incarnation > known
        else before
    )


def start_seconds(last: LaunchOrder, older: PodState, newer: PodState) -> list[float]:
    """Of the ranks that are now known to have begun: seconds since the launcher was told to start them."""
    if last.incarnation != newer.current:
        return []
    began = [
        rank.update.started_ms
        for number, rank in newer.ranks.items()
        if rank.update.started_ms and not (_before(older, newer, number) or _NONE).started_ms
    ]
    return [max(0.0, ms / 1000 - last.at) for ms in began]


def exits(since: float, older: PodState, newer: PodState) -> list[str]:
    """How those ranks ended which have done so by now, but not before `since`: Unix seconds at which this
    agent came to know of the pod. A launcher tells every agent anew.
    """
    return [
        exit_kind(rank.update)
        for number, rank in newer.ranks.items()
        if rank.update.state == "EXITED"
        and (_before(older, newer, number) or _NONE).state != "EXITED"
        and (not rank.update.ended_ms or rank.update.ended_ms / 1000 >= since)
    ]


def exit_kind(update: RankUpdate) -> str:
    """One of `EXITS`."""
    if update.command_not_found:
        return "command_not_found"
    if update.oom:
        return "out_of_memory"
    if update.hung:
        return "hung"
    if update.signal:
        return "killed"
    return "failed" if update.exit_code else "done"


_NONE = RankUpdate(0, 0, "")


def _before(older: PodState, newer: PodState, number: int) -> RankUpdate | None:
    """What was known of a rank of this incarnation."""
    if older.current != newer.current or number not in older.ranks:
        return None
    return older.ranks[number].update
