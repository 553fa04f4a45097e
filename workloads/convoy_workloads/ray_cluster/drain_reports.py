"""Reports the nodes that another program drains in Ray to the job's SpotPools.

A worker whose pod ends drains its own Ray node. Such a drain says nothing about the machine, so it is not
reported.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable

from convoy_workloads.ray_cluster.private import Drain
from convoy_workloads.runtime.node_notice import MAX_DEADLINE_SECONDS

POLL_SECONDS = 2.0
"""Mean seconds between two polls. Each pause is between 75 and 125 % of this value."""
AGAIN_SECONDS = 1.0
"""Two deadlines of a node that differ by less are the same."""
LATE_SECONDS = 60.0
"""Seconds after its deadline for which a drain is still reported."""
STOP_SECONDS = 10.0
"""Maximum number of seconds that `stop` waits for a poll to end."""

Report = Callable[[str, float], None]
"""Reports a node: the IP of its pod, and the seconds until it may disappear. `job.report_notice` is one."""


class DrainReports:
    """The drains that were reported. Each is reported once, and again if its deadline changes."""

    def __init__(self, report: Report, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns Unix seconds."""
        self._report = report
        self._clock = clock
        self._known: dict[str, float] = {}
        """The deadline of each node that drains, as it was reported, by id of the node."""

    def update(self, drains: Iterable[Drain]) -> None:
        """Report the drains that are new or have another deadline."""
        now = self._clock()
        present: dict[str, float] = {}
        for one in drains:
            known = self._known.get(one.node_id)
            if known is not None and _same(known, one.deadline):
                present[one.node_id] = known
                continue
            present[one.node_id] = one.deadline
            if one.deadline >= now - LATE_SECONDS:
                self._report(one.address, min(MAX_DEADLINE_SECONDS, max(0.0, one.deadline - now)))
        # A failed poll shows no node at all, and must not cause a second report.
        self._known = present or self._known


class DrainWatch:
    """A thread that polls the drains and reports them."""

    def __init__(self, poll: Callable[[], Iterable[Drain]], report: Report) -> None:
        """`poll` returns the present drains. It must end in time, and raise nothing."""
        self._poll = poll
        self._reports = DrainReports(report)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="convoy-drains", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Wait at most STOP_SECONDS for it."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._reports.update(self._poll())
            self._stop.wait(POLL_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311 - jitter


def _same(one: float, other: float) -> bool:
    return one == other or abs(one - other) < AGAIN_SECONDS
