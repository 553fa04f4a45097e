"""Tenant: processes in a pod's container that use a fraction of its processors.

They have the highest priority, so they get what they ask for. Measured magnitude: their processor time,
divided by the container's processors and the elapsed time.
"""

from __future__ import annotations

import contextlib
import math
import os

from convoy_agents.faults.error import FaultError
from convoy_agents.faults.fault import Fault, Surroundings, Target
from convoy_agents.faults.helper import Helper, cpu_seconds, family, kill_left, start_time
from convoy_agents.faults.pod_processes import ranks_container
from convoy_agents.faults.record import Record

MEASURE_SECONDS = 1.0
"""Shortest time after which the magnitude is measured."""
PROGRAM = """
import os, select, sys, time
share, number, period = float(sys.argv[1]), int(sys.argv[2]), 0.02
sys.stdin.readline()
for _ in range(number - 1):
    if os.fork() == 0:
        break
due = time.perf_counter()
while not select.select([sys.stdin], [], [], max(0.0, due - time.perf_counter()))[0]:
    used = time.thread_time() + share * period
    while time.thread_time() < used:
        pass
    due += period
"""
"""Computes in `number` processes, each for `share` of every period, until the standard input ends."""


class Tenant(Fault):
    """Processes that compete with a pod's own."""

    def __init__(self, record: Record, surroundings: Surroundings) -> None:
        super().__init__(record, surroundings)
        self._helper: Helper | None = None

    def start(self, target: Target) -> None:
        """Start the processes in the container of the pod's ranks."""
        self._launch(target)
        self.active = True

    def keep(self, target: Target) -> None:
        """Measure the processes' share. Start them again if the pod's container is another one."""
        own = family(self.around.node.proc, self._helper.pid) if self._helper is not None else []
        if not self._container.exists or not set(self._container.pids()) - set(own):
            self._stop()
            with contextlib.suppress(FaultError):  # The ranks restart.
                self._launch(target)
            return
        elapsed = self.around.clock() - self._began
        if elapsed >= MEASURE_SECONDS:
            used = sum(cpu_seconds(self.around.node.proc, pid) for pid in own)
            self.record.achieved = used / (elapsed * self._capacity)

    def undo(self) -> None:
        """Kill the processes. Those that an earlier agent left have ended with it, or are killed."""
        self._stop()
        if (left := self.record.undo.get("helper")) is not None:
            kill_left(self.around.node.proc, *left)

    def _launch(self, target: Target) -> None:
        self._container = ranks_container(self.around.node, target.pod_uid)
        self._capacity = self._container.capacity()
        self._began = self.around.clock()
        cores = self.order.magnitude * self._capacity
        number = math.ceil(cores)
        if not number:
            return
        # One process enters the container and then forks the others, so their memory is the container's.
        self._helper = Helper(PROGRAM, str(cores / number), str(number))
        pid = self._helper.pid
        self.record.undo["helper"] = (pid, start_time(self.around.node.proc, pid))
        self.save()
        try:
            os.setpriority(os.PRIO_PROCESS, pid, -20)
            self._helper.run_in(self._container, "cpu", "cpuacct", "memory")
        except OSError as error:
            raise FaultError(f"no process may join the pod's container: {error}") from error

    def _stop(self) -> None:
        if self._helper is not None:
            proc = self.around.node.proc
            for pid in family(proc, self._helper.pid)[1:]:
                kill_left(proc, pid, start_time(proc, pid))
            self._helper.stop()
            self._helper = None
