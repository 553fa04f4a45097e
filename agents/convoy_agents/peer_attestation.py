"""The attestations that this agent gives to nodes that cannot reach the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from convoy_agents.pods.state import PodState
from convoy_controllers.liveness.attestation import AttestationRequests, may_attest


class PeerAttestation:
    """Decides on attestation requests of other agents, and remembers the granted requests. `clock` returns
    monotonic seconds.
    """

    def __init__(self, pods: Callable[[], Iterable[PodState]], clock: Callable[[], float]) -> None:
        self._pods = pods
        self._clock = clock
        self._granted = AttestationRequests()

    def request(self, node: str, job_uid: str) -> bool:
        """Return True if this agent attests `node` for the job. If so, remember the request."""
        plans = [
            pod.assignment for pod in self._pods() if pod.assignment and pod.assignment.job_uid == job_uid
        ]
        if not may_attest(plans, node):
            return False
        self._granted.record(node, self._clock())
        return True

    def recent(self) -> list[tuple[str, int]]:
        """Return (node, milliseconds since the node's last granted request) for each remembered request."""
        return [(node, int(age * 1000)) for node, age in self._granted.recent(self._clock())]
