"""Which agents are there. Pure: times are given.

An agent is silent when nothing of it was heard for a while. A leader that has just begun judges nobody
until the agents had time to dial; and when many fall silent at once it is the operator's own network that
failed, so they are taken for present and an alarm is raised. An agent that fell silent by itself, said
goodbye, or has long been given up is no sign of that: agents are also removed for good.

A node that holds workers must have an agent. One of which this leader never heard has been silent since it
was first asked about: its agent may have been lost together with the leader before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain

_SHARE = 0.3
"""More silent agents than this share of all, at once, are not believed."""
_AT_LEAST = 3
"""Fewer silent agents than this are always believed: in a small cluster one node is a large share."""
_EARLY = 5.0
"""Seconds after which a leader begins to judge where all agents but a few have dialled."""
_LOOK = 0.5
"""More than the time between two looks at who is silent."""
_TOGETHER = 30.0
"""Silences that began within so many seconds may have one cause."""
_FORGOTTEN = 300.0
"""Seconds after which a silence tells nothing of the operator's network, and a goodbye is for good."""


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
    _expected: dict[str, _Heard] = field(default_factory=dict)
    """Of nodes that must have an agent and were never heard: when that was first asked for."""
    _judged: tuple[float, bool] | None = None
    """The alarm and when it was found so: one pass asks for it once per silent agent."""

    def begin(self, now: float) -> None:
        """This replica leads from now on."""
        self._since = now

    def heard(self, node: str, now: float) -> None:
        """Something came from a node's agent."""
        self._heard[node] = _Heard(now)
        self._expected.pop(node, None)
        self._judged = None

    def expect(self, nodes: Iterable[str], now: float) -> None:
        """These nodes, and of those never heard no others, must have an agent."""
        before = self._expected
        self._expected = {node: before.get(node) or _Heard(now) for node in nodes if node not in self._heard}
        if self._expected.keys() != before.keys():
            self._judged = None

    def excuse(self, seconds: float, now: float) -> None:
        """The operator itself did not listen for so long until now: that is nobody's silence."""
        for heard in chain(self._heard.values(), self._expected.values()):
            heard.at = min(now, heard.at + seconds)
        self._judged = None

    def farewell(self, node: str, now: float) -> None:
        """A node's agent announced that it exits."""
        self._heard[node] = _Heard(now, farewell=True)
        self._judged = None

    def departed(self, occupied: Collection[str], now: float) -> list[str]:
        """Agents that said goodbye long ago and have no workers to mind: they were removed for good."""
        return [
            node
            for node, heard in self._heard.items()
            if heard.farewell and now - heard.at > _FORGOTTEN and node not in occupied
        ]

    def forget(self, node: str) -> None:
        """The node, or its agent, is no more."""
        self._heard.pop(node, None)
        self._expected.pop(node, None)
        self._judged = None

    def grace(self, now: float) -> float:
        """Seconds until judgement begins; 0 when it has."""
        if self._since is None:
            return self.grace_seconds
        since = self._since
        if now >= since + self.grace_seconds:
            return 0.0
        # Those who dial at all dial at once: the few that are still missing then are not merely late.
        dialled = sum(1 for heard in self._heard.values() if heard.at >= since)
        missing = len(self._expected) + len(self._heard) - dialled
        few = dialled and missing < max(2, _SHARE * (missing + dialled))
        # Who was never heard is silent only from the first look on.
        early = max(_EARLY, self.silent_seconds + _LOOK)
        whole = min(early, self.grace_seconds) if few else self.grace_seconds
        return max(0.0, since + whole - now)

    def silence(self, node: str, now: float) -> float:
        """Seconds for which nothing was heard of a node's agent; infinite when it was never heard."""
        heard = self._heard.get(node)
        return now - heard.at if heard else float("inf")

    def quiet(self, seconds: float, now: float) -> dict[str, float]:
        """By node, the silence of each agent that is longer than `seconds`, believed or not."""
        return {
            node: now - heard.at
            for node, heard in chain(self._heard.items(), self._expected.items())
            if now - heard.at > seconds
        }

    def silent(self, node: str, now: float) -> float:
        """Seconds of an agent's silence once it is longer than the limit and believed; 0 before."""
        heard = self._heard.get(node) or self._expected.get(node)
        if heard is None or self.grace(now) > 0 or self._there(heard, now):
            return 0.0
        return now - heard.at

    def known(self, node: str) -> bool:
        """Whether the agent has dialled this hub."""
        return node in self._heard

    def alarm(self, now: float) -> bool:
        """Whether so many agents are silent that none of them is believed."""
        if self._judged is None or self._judged[0] != now:
            self._judged = (now, self._judge(now))
        return self._judged[1]

    def _judge(self, now: float) -> bool:
        every = chain(self._heard.values(), self._expected.values())
        began = sorted(heard.at for heard in every if self._suspicious(heard, now))
        there = sum(1 for heard in self._heard.values() if not self._overdue(heard, now))
        most = first = 0
        for last, at in enumerate(began):
            while at - began[first] > _TOGETHER:
                first += 1
            most = max(most, last - first + 1)
        return most >= _AT_LEAST and most > _SHARE * (there + len(began))

    def connected(self, node: str, now: float) -> bool:
        """Whether the node's agent is to be taken for present."""
        heard = self._heard.get(node)
        return heard is not None and self._there(heard, now)

    def present(self, now: float) -> set[str]:
        """Nodes whose agents are to be taken for present."""
        return {node for node, heard in self._heard.items() if self._there(heard, now)}

    def _there(self, heard: _Heard, now: float) -> bool:
        return not self._overdue(heard, now) or (self._suspicious(heard, now) and self.alarm(now))

    def _overdue(self, heard: _Heard, now: float) -> bool:
        return now - heard.at > (self.farewell_seconds if heard.farewell else self.silent_seconds)

    def _suspicious(self, heard: _Heard, now: float) -> bool:
        """Whether a silence may be the operator's own fault."""
        return self._overdue(heard, now) and not heard.farewell and now - heard.at <= _FORGOTTEN
