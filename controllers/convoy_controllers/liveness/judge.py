"""Decides which agents are present. Pure: the caller passes times.

An agent is silent if it has sent nothing for `silent_seconds`. A new leader judges no agent until the
agents have had time to dial. If many agents become silent at once, the operator's own network is assumed to
have failed. These agents then count as present, and an alarm is raised. Three kinds of silence do not count
towards the alarm, because agents are also removed on purpose: that of a single agent, that of an agent that
announced its exit, and a silence longer than _FINAL_SECONDS.

Nodes of SpotPools count neither as silent nor as present, because a provider takes back many of them at once.
While no agent at all is present, they do count, because a provider takes back no other nodes.

A node with workers must have an agent. If this leader has never received anything from the agent, the
silence starts when the leader first expected the agent. The agent may have been lost together with the
previous leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from convoy_controllers.liveness.timings import POLL_SECONDS

_SHARE = 0.3
"""Maximum share of the agents that may become silent together. If more do, an alarm is raised, because the
operator's own network is assumed to have failed.
"""
_AT_LEAST = 3
"""Minimum number of silent agents for an alarm. In a small cluster even one node is a large share."""
_EARLY = 5.0
"""Minimum seconds until a new leader judges agents, if nearly all agents have dialled."""
_TWO_POLLS = 2 * POLL_SECONDS + 0.1
"""Seconds within which two polls have certainly happened."""
_TOGETHER = 30.0
"""Maximum number of seconds between the starts of two silences for them to have a common cause."""
_FINAL_SECONDS = 300.0
"""Seconds after which a silence no longer counts towards the alarm, and an announced exit is final."""


@dataclass(slots=True)
class _Sign:
    """Time of an agent's last message. For an agent that never sent anything: the time at which it was
    first expected.
    """

    at: float
    farewell: bool = False
    """True if the agent announced its exit."""


@dataclass(slots=True)
class Liveness:
    """Times of the last messages from all agents, and the decisions that follow. Times are monotonic
    seconds.
    """

    silent_seconds: float
    grace_seconds: float
    """Seconds after `start_leading` during which no agent is judged."""
    farewell_seconds: float
    """Seconds for which an agent may be absent after it announced its exit: an update of the DaemonSet
    takes that long.
    """
    _since: float | None = None
    _signs: dict[str, _Sign] = field(default_factory=dict)
    _expected: dict[str, _Sign] = field(default_factory=dict)
    """Nodes that must have an agent but never sent anything, each with the time at which it was first
    expected.
    """
    _spot: frozenset[str] = frozenset()
    """Nodes of SpotPools."""
    _judged: tuple[float, bool] | None = None
    """Time and result of the last alarm decision. The result is kept because each poll needs it once per
    silent agent.
    """

    def start_leading(self, now: float) -> None:
        """Record that this replica of the operator leads from now on."""
        self._since = now

    def record_sign(self, node: str, now: float) -> None:
        """Record that a node's agent sent something at `now`."""
        self._signs[node] = _Sign(now)
        self._expected.pop(node, None)
        self._judged = None

    def expect(self, nodes: Iterable[str], now: float) -> None:
        """Expect an agent on exactly these nodes. Nodes whose agents have already sent something are
        ignored.
        """
        before = self._expected
        self._expected = {node: before.get(node) or _Sign(now) for node in nodes if node not in self._signs}
        if self._expected.keys() != before.keys():
            self._judged = None

    def set_spot_nodes(self, nodes: frozenset[str]) -> None:
        """Set the nodes of SpotPools. They may vanish together, so they do not count towards the alarm."""
        if nodes != self._spot:
            self._spot = nodes
            self._judged = None

    def excuse(self, seconds: float, now: float) -> None:
        """Do not count the last `seconds` as silence of any agent, because the operator itself received no
        messages during this time.
        """
        for sign in chain(self._signs.values(), self._expected.values()):
            sign.at = min(now, sign.at + seconds)
        self._judged = None

    def record_farewell(self, node: str, now: float) -> None:
        """Record that a node's agent announced its exit at `now`."""
        self._signs[node] = _Sign(now, farewell=True)
        self._judged = None

    def departed(self, occupied: Collection[str], now: float) -> list[str]:
        """Return the nodes without workers whose agents announced their exit more than _FINAL_SECONDS ago.
        These agents were removed for good.
        """
        return [
            node
            for node, sign in self._signs.items()
            if sign.farewell and now - sign.at > _FINAL_SECONDS and node not in occupied
        ]

    def drop(self, node: str) -> None:
        """Drop a node that no longer exists, or that no longer has an agent."""
        self._signs.pop(node, None)
        self._expected.pop(node, None)
        self._judged = None

    def grace(self, now: float) -> float:
        """Return the seconds until agents are judged; 0 if they are judged already."""
        if self._since is None:
            return self.grace_seconds
        since = self._since
        if now >= since + self.grace_seconds:
            return 0.0
        # Agents dial as soon as there is a leader. If most have dialled, the few others are not merely late,
        # so judge early.
        dialled = sum(1 for sign in self._signs.values() if sign.at >= since)
        missing = len(self._expected) + len(self._signs) - dialled
        few = dialled and missing < max(2, _SHARE * (missing + dialled))
        # Wait for at least two more polls. If an agent never sent anything, its silence starts with the
        # leader's first poll.
        early = max(_EARLY, self.silent_seconds + _TWO_POLLS)
        whole = min(early, self.grace_seconds) if few else self.grace_seconds
        return max(0.0, since + whole - now)

    def silence(self, node: str, now: float) -> float:
        """Return the seconds since a node's agent last sent something; infinite if it never did."""
        sign = self._signs.get(node)
        return now - sign.at if sign else float("inf")

    def quiet(self, seconds: float, now: float) -> dict[str, float]:
        """Return by node every silence in seconds that is longer than `seconds`. Silences that are
        attributed to the operator's own network are included.
        """
        return {
            node: now - sign.at
            for node, sign in chain(self._signs.items(), self._expected.items())
            if now - sign.at > seconds
        }

    def silent(self, node: str, now: float) -> float:
        """Return the seconds of an agent's silence if the agent counts as absent because of the silence,
        else 0.
        """
        sign = self._signs.get(node) or self._expected.get(node)
        if sign is None or self.grace(now) > 0 or self._present(sign, now):
            return 0.0
        return now - sign.at

    def known(self, node: str) -> bool:
        """Return True if the node's agent has dialled this hub."""
        return node in self._signs

    def unsettled(self, nodes: Iterable[str], now: float) -> float:
        """Return the seconds until all these nodes' agents are known to be present or absent; 0 if that is
        known.
        """
        return 0.0 if all(self.known(node) for node in nodes) else self.grace(now)

    def alarm(self, now: float) -> bool:
        """Return True if so many agents became silent together that the operator's own network is assumed
        to have failed.
        """
        if self._judged is None or self._judged[0] != now:
            self._judged = (now, self._judge(now))
        return self._judged[1]

    def _judge(self, now: float) -> bool:
        def others(signs: Mapping[str, _Sign]) -> list[_Sign]:
            return [sign for node, sign in signs.items() if node not in self._spot]

        if self._too_many_silent(others(self._signs), others(self._expected), now):
            return True
        nobody = all(self._overdue(sign, now) for sign in self._signs.values())
        return nobody and self._too_many_silent(self._signs.values(), self._expected.values(), now)

    def _too_many_silent(self, heard: Collection[_Sign], expected: Collection[_Sign], now: float) -> bool:
        began = sorted(sign.at for sign in chain(heard, expected) if self._suspicious(sign, now))
        present = sum(1 for sign in heard if not self._overdue(sign, now))
        most = first = 0
        for last, at in enumerate(began):
            while at - began[first] > _TOGETHER:
                first += 1
            most = max(most, last - first + 1)
        return most >= _AT_LEAST and most > _SHARE * (present + len(began))

    def connected(self, node: str, now: float) -> bool:
        """Return True if the node's agent counts as present."""
        sign = self._signs.get(node)
        return sign is not None and self._present(sign, now)

    def present(self, now: float) -> set[str]:
        """Return the nodes whose agents count as present."""
        return {node for node, sign in self._signs.items() if self._present(sign, now)}

    def _present(self, sign: _Sign, now: float) -> bool:
        return not self._overdue(sign, now) or (self._suspicious(sign, now) and self.alarm(now))

    def _overdue(self, sign: _Sign, now: float) -> bool:
        return now - sign.at > (self.farewell_seconds if sign.farewell else self.silent_seconds)

    def _suspicious(self, sign: _Sign, now: float) -> bool:
        """Return True if an agent's silence may be the fault of the operator's network."""
        return self._overdue(sign, now) and not sign.farewell and now - sign.at <= _FINAL_SECONDS
