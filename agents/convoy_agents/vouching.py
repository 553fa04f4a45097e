"""The isolated nodes that have asked this agent to vouch for them, and whether it may."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from convoy_agents.pods.state import PodState

REMEMBER_SECONDS = 30.0
"""Longer than the operator counts a voice (fence.FENCE_SECONDS)."""
MAX_NODES = 1024
"""Remembered at once; who asked longest ago makes room."""


class Vouching:
    """`clock`: seconds that only move forward."""

    def __init__(self, pods: Callable[[], Iterable[PodState]], clock: Callable[[], float]) -> None:
        self._pods = pods
        self._clock = clock
        self._asked: dict[str, float] = {}

    def asked(self, node: str, job_uid: str) -> bool:
        """`node` asks for this job. Whether this agent's voice counts: then, and only then, it is kept.

        It does not when the newest plan that is known here has no place for `node`: the job went on without.
        """
        plans = [
            pod.assignment for pod in self._pods() if pod.assignment and pod.assignment.job_uid == job_uid
        ]
        newest = max(plans, key=lambda plan: plan.incarnation, default=None)
        if newest is None or node not in {member.node for member in newest.members}:
            return False
        self._asked.pop(node, None)
        self._asked[node] = self._clock()
        if len(self._asked) > MAX_NODES:
            del self._asked[next(iter(self._asked))]
        return True

    def recent(self) -> list[tuple[str, int]]:
        """(node, milliseconds since it last asked) of all that are remembered."""
        now = self._clock()
        for node in [node for node, at in self._asked.items() if now - at > REMEMBER_SECONDS]:
            del self._asked[node]
        return [(node, int((now - at) * 1000)) for node, at in self._asked.items()]
