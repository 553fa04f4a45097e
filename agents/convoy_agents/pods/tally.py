"""Pure functions that compare two states of a pod and return what to count: starts and ends of ranks, and
restarts in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from convoy_agents.pods.messages import LauncherHello, RankUpdate
from convoy_agents.pods.state import Event, PodState

STATES = ("STARTING", "RUNNING", "EXITED")
EXITS = ("done", "failed", "killed", "out_of_memory", "hung", "command_not_found")
"""The ways in which a rank can end."""
STARTS = ("fresh", "in_place")
"""The ways in which ranks can start. `fresh` ranks are the first of their pod. `in_place` ranks start again
in the same pod, perhaps from a zygote.
"""


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """The agent's newest order to a launcher to start the ranks of an incarnation."""

    incarnation: int
    at: float
    """Unix time in seconds when the agent sent the order."""
    in_place: bool
    """True if the pod already ran ranks of an earlier incarnation."""

    @property
    def kind(self) -> str:
        """Return the kind of start, one of `STARTS`."""
        return STARTS[self.in_place]


def latest_order(
    before: LaunchOrder | None, event: Event, older: PodState, newer: PodState, now: float
) -> LaunchOrder | None:
    """Return the newest order to the launcher, after `event` changed the pod's state from `older` to
    `newer` at the time `now`.
    """
    known = event.incarnation if isinstance(event, LauncherHello) else older.launcher_incarnation
    return (
        LaunchOrder(newer.launcher_incarnation, now, in_place=known > 0)
        if newer.launcher_incarnation > known
        else before
    )


def start_seconds(last: LaunchOrder, older: PodState, newer: PodState) -> list[float]:
    """Return the seconds from the order `last` to the start of each rank that started between the two
    states. Such a rank has a start time in `newer` but not in `older`.
    """
    if last.incarnation != newer.current:
        return []
    began = [
        rank.update.started_ms
        for number, rank in newer.ranks.items()
        if rank.update.started_ms and not (_before(older, newer, number) or _NONE).started_ms
    ]
    return [max(0.0, ms / 1000 - last.at) for ms in began]


def exits(since: float, older: PodState, newer: PodState) -> list[str]:
    """Return one of `EXITS` for each rank that is EXITED in `newer` but not in `older`.

    `since` is the Unix time in seconds at which this agent first saw the pod. Ranks that ended earlier are
    omitted, because a launcher reports them again to every new agent.
    """
    return [
        exit_kind(rank.update)
        for number, rank in newer.ranks.items()
        if rank.update.state == "EXITED"
        and (_before(older, newer, number) or _NONE).state != "EXITED"
        and (not rank.update.ended_ms or rank.update.ended_ms / 1000 >= since)
    ]


def exit_kind(update: RankUpdate) -> str:
    """Return how a rank ended, as one of `EXITS`."""
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
    """Return the rank's update in `older`; None if it does not exist or belongs to another incarnation than
    `newer`.
    """
    if older.current != newer.current or number not in older.ranks:
        return None
    return older.ranks[number].update
