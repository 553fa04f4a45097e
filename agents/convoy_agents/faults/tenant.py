"""Tenant: processes in a pod's container that use a fraction of its processors.

They have the highest priority, so they get what they ask for. Measured magnitude: their processor time,
divided by the container's processors and the elapsed time.
"""

from __future__ import annotations

import contextlib
import math
import os

from convoy_agents.faults.error import FaultError, TargetGone
from convoy_agents.faults.fault import Fault, Surroundings, Target
from convoy_agents.faults.helper import Helper, cpu_seconds, kill_left, start_time
from convoy_agents.faults.pod_processes import ranks_container
from convoy_agents.faults.record import Record

MEASURE_SECONDS = 1.0
"""Shortest time after which the magnitude is measured."""
PROGRAM = """
import select, sys, time
share, period = float(sys.argv[1]), 0.02
sys.stdin.readline()
due = time.perf_counter()
while not select.select([sys.stdin], [], [], max(0.0, due - time.perf_counter()))[0]:
    used = time.thread_time() + share * period
    while time.thread_time() < used:
        pass
    due += period
"""
"""Computes for `share` of each period until its standard input ends."""


class Tenant(Fault):
    """Processes that compete with a pod's own."""

    def __init__(self, record: Record, surroundings: Surroundings) -> None:
        super().__init__(record, surroundings)
        self._helpers: list[Helper] = []

    def start(self, target: Target) -> None:
        """Start the processes in the container of the pod's ranks."""
        self._container = ranks_container(self.around.node, target.pod_uid)
        self._capacity = self._container.capacity()
        self._launch()
        self._began, self.active = self.around.clock(), True

    def keep(self, target: Target) -> None:
        """Measure the processes' share. Start them again if the pod's container is another one."""
        if not self._container.exists or not self._others():
            self._stop()
            with contextlib.suppress(FaultError):  # The ranks restart.
                self._container = ranks_container(self.around.node, target.pod_uid)
                self._launch()
                self._began = self.around.clock()
            return
        elapsed = self.around.clock() - self._began
        if elapsed >= MEASURE_SECONDS:
            used = sum(cpu_seconds(self.around.node.proc, one.pid) for one in self._helpers)
            self.record.achieved = used / (elapsed * self._capacity)

    def undo(self) -> None:
        """Kill the processes, also those that an earlier agent left."""
        self._stop()
        for pid, started in self.record.undo.get("helpers", []):
            kill_left(self.around.node.proc, pid, started)

    def _launch(self) -> None:
        cores = self.order.magnitude * self._capacity
        number = math.ceil(cores)  # With magnitude 0 there is none.
        self._helpers = [Helper(PROGRAM, str(cores / number)) for _ in range(number)]
        proc = self.around.node.proc
        self.record.undo["helpers"] = [(one.pid, start_time(proc, one.pid)) for one in self._helpers]
        self.save()
        try:
            for one in self._helpers:
                os.setpriority(os.PRIO_PROCESS, one.pid, -20)
                one.run_in(self._container, "cpu", "cpuacct")
        except (TargetGone, OSError) as error:
            self._stop()
            if isinstance(error, TargetGone):
                raise
            raise FaultError(f"no process may join the pod's container: {error}") from error

    def _others(self) -> bool:
        """Return True if the container still runs processes of the pod."""
        own = {one.pid for one in self._helpers}
        return bool(set(self._container.pids()) - own)

    def _stop(self) -> None:
        for one in self._helpers:
            one.stop()
        self._helpers = []
