"""Which agents are there. Pure: times are given.

An agent is silent when nothing of it was heard for a while. A leader that has just begun judges nobody
until the agents had time to dial; and when many fall silent at once it is the operator's own network that
failed, so all are taken for present and an alarm is raised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_SHARE = 0.3
"""More silent agents than this share of all, at once, are not believed."""
_AT_LEAST = 3
"""Fewer silent agents than this are always believed: in a small cluster one node is a large share."""


@dataclass(slots=True)
class _Heard:
    """What was last heard of one agent."""

    at: float
    farewell: bool = False
    """It said that it would be away."""


@dataclass(slots=True)
class Liveness:
    """Times are monotonic seconds."""

    silent_seconds: float
    grace_seconds: float
    """How long after `begin` nobody is judged."""
    farewell_seconds: float
    """How long an agent that said goodbye may be away: an update of the DaemonSet takes that long."""
    _since: float | None = None
    _heard: dict[str, _Heard] = field(default_factory=dict)

    def begin(self, now: float) -> None:
        """This replica leads from now on."""
        self._since = now

    def heard(self, node: str, now: float) -> None:
        """Something came from a node's agent."""
        self._heard[node] = _Heard(now)

    def farewell(self, node: str, now: float) -> None:
        """A node's agent announced that it exits."""
        self._heard[node] = _Heard(now, farewell=True)

    def forget(self, node: str) -> None:
        """The node is no more."""
        self._heard.pop(node, None)

    def grace(self, now: float) -> float:
        """Seconds until judgement begins; 0 when it has."""
        return (
            max(0.0, self._since + self.grace_seconds - now)
            if self._since is not None
            else self.grace_seconds
        )

    def silence(self, node: str, now: float) -> float:
        """Seconds for which nothing was heard of a node's agent; infinite when it was never heard."""
        heard = self._heard.get(node)
        return now - heard.at if heard else float("inf")

    def known(self, node: str) -> bool:
        """Whether the agent has dialled this hub."""
        return node in self._heard

    def alarm(self, now: float) -> bool:
        """Whether so many agents are silent that none of them is believed."""
        silent = sum(1 for node in self._heard if self._silent(node, now))
        return silent >= _AT_LEAST and silent > _SHARE * len(self._heard)

    def connected(self, node: str, now: float) -> bool:
        """Whether the node's agent is to be taken for present."""
        if node not in self._heard:
            return False
        return not self._silent(node, now) or self.alarm(now)

    def _silent(self, node: str, now: float) -> bool:
        heard = self._heard[node]
        return now - heard.at > (self.farewell_seconds if heard.farewell else self.silent_seconds)
