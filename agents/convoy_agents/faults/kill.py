"""KillRank: SIGKILL to a rank, as many times as the magnitude says.

The kills are spread evenly over the time of the fault, at most MAX_PAUSE seconds apart. Measured magnitude:
the number of kills. There is nothing to undo.
"""

from __future__ import annotations

from convoy_agents.faults.error import FaultError
from convoy_agents.faults.fault import Fault, Target
from convoy_agents.faults.pod_processes import kill_process, rank_pid

MAX_PAUSE = 20.0
"""Longest time between two kills in seconds."""


class KillRank(Fault):
    """SIGKILL to one rank of a pod."""

    def start(self, target: Target) -> None:
        """Begin. The first kill comes with the first `keep`."""
        if self.order.rank >= target.processes:
            raise FaultError(f"rank: the pod has no rank {self.order.rank}, only {target.processes} ranks")
        self._next = self.around.clock()
        self.record.achieved = 0.0

    def keep(self, target: Target) -> None:
        """Send SIGKILL if it is due and the rank runs."""
        self.active = True
        done, now = int(self.record.achieved or 0), self.around.clock()
        if done >= self.order.magnitude or now < self._next:
            return
        pid = rank_pid(self.around.node, target.pod_uid, target.first_rank + self.order.rank)
        if pid is not None and kill_process(self.around.node, target.pod_uid, pid):
            self.record.achieved = done + 1.0
            self._next = now + min(MAX_PAUSE, self.order.seconds / self.order.magnitude)

    def undo(self) -> None:
        """Do nothing: the launcher or the operator restarts the rank."""
