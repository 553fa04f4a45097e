"""Measures the processor time of other programs on this machine. Their load can distort the results of a
bench.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path

from e2e.bench.rig.programs import cpu_seconds
from e2e.cluster.cluster import Cluster

_TICKS = os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """Return the processor seconds that the whole machine has used since it booted."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = map(int, words[:7])
    return (user + nice + system + irq + softirq) / _TICKS


class OtherLoad:
    """Processor use of all programs except this process and the rig, since the last `restart`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.restart()

    def restart(self) -> None:
        """Start the measurement again."""
        self._at, self._busy = time.monotonic(), busy_seconds()
        self._alive, self._ended = self._rig(), _ended_seconds()
        self._self = time.process_time()

    def cores(self) -> float:
        """Return the mean number of processors that other programs have used since the last `restart`."""
        now = self._rig()
        ours = time.process_time() - self._self
        # `_ended_seconds` has the total time of an ended process. Subtract the part that it used before
        # `restart`.
        ours += sum(now.values()) - sum(self._alive.values()) + _ended_seconds() - self._ended
        return max(0.0, (busy_seconds() - self._busy - ours) / (time.monotonic() - self._at))

    async def wait_quiet(self, most_cores: float, seconds: float, deadline: float) -> None:
        """Wait until other programs use at most `most_cores` processors during `seconds`.

        Return without an error after `deadline` seconds.
        """
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            self.restart()
            await asyncio.sleep(seconds)
            if self.cores() <= most_cores:
                return

    def _rig(self) -> dict[int, float]:
        living = [process for process in self._cluster.state().processes.values() if process.alive]
        return {process.pid: cpu_seconds(process) for process in living}


def _ended_seconds() -> float:
    """Return the processor seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
