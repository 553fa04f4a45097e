"""Pure functions that detect countable events: starts and ends of a pod's ranks, and restarts in place."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_agents.pods.messages import LauncherHello, RankUpdate
from convoy_agents.pods.state import Event, PodState

STATES = ("STARTING", "RUNNING", "EXITED")
EXITS = ("done", "failed", "killed", "out_of_memory", "hung", "command_not_found")
"""The ways a rank can end."""
STARTS = ("fresh", "in_place")
"""The ways ranks can start: as the first of their pod, or again in the same pod, perhaps from a zygote."""


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """The newest order to a launcher to start an incarnation."""

    incarnation: int
    at: float
    """Unix seconds."""
    in_place: bool
    """True if the pod's ranks already ran in an earlier incarnation."""

    @property
    def kind(self) -> str:
        """One of `STARTS`."""
        return STARTS[self.in_place]


def latest_order(
    before: LaunchOrder | None, event: Event, older: PodState, newer: PodState, now: float
) -> LaunchOrder | None:
    """Return the newest order after an event changed `older` to `newer`."""
    known = event.incarnation if isinstance(event, LauncherHello) else older.launcher_incarnation
    return (
        LaunchOrder(newer.launcher_incarnation, now, in_place=known > 0)
        if newer.launcher_incarnation > known
        else before
    )


def start_seconds(last: LaunchOrder, older: PodState, newer: PodState) -> list[float]:
    """Return the seconds from the order to the start, for each rank whose start is newly known."""
    if last.incarnation != newer.current:
        return []
    began = [
        rank.update.started_ms
        for number, rank in newer.ranks.items()
        if rank.update.started_ms and not (_before(older, newer, number) or _NONE).started_ms
    ]
    return [max(0.0, ms / 1000 - last.at) for ms in began]


def exits(since: float, older: PodState, newer: PodState) -> list[str]:
    """Return how ranks ended: those that are newly EXITED and ended at or after `since`.

    `since` is the time (Unix seconds) at which this agent first saw the pod. It excludes earlier exits,
    which a launcher reports again to every new agent.
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
    """Return the previous update of a rank of the same incarnation, else None."""
    if older.current != newer.current or number not in older.ranks:
        return None
    return older.ranks[number].update
