"""A ServingJob under a load, whose revisions roll."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from convoy.load.outcome import Kind
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.soak.part import NO_ANSWER, Part
from e2e.cluster.errors import ClusterError
from e2e.drive.jobs import WaitTimeout
from e2e.drive.serving_jobs import Load, ServingJobs, load, seeded

NAME = "served"
REPLICAS = 2
RATE = 5.0
"""Requests per second, each on a connection of its own."""
TIMEOUT_SECONDS = 30
"""Time limit of a request."""
ROLL_SECONDS = 240.0
"""Time between two revisions."""
CHANGE_SECONDS = 5.0
"""Time after a kill in which the Service may still send requests to the pod."""


class Kill(NamedTuple):
    """A kill of a process that serves, between two Unix times in seconds."""

    after: float
    before: float


def lost_beyond_in_flight(
    failures: Iterable[Mapping[str, Any]], started_at: float, kills: Iterable[Kill]
) -> list[Mapping[str, Any]]:
    """Return the failures of a load that no kill explains. A request that was shed is no failure.

    A kill explains a request that had arrived before it and ended after it. `failures`: those of the load's
    report. `started_at`: Unix time of the load's start.
    """
    moments = list(kills)
    return [
        one
        for one in failures
        if one["outcome"] != Kind.SHED
        and not any(
            started_at + one["atSeconds"] <= kill.before and kill.after <= started_at + one["endSeconds"]
            for kill in moments
        )
    ]


def soon_after(lost: Iterable[Mapping[str, Any]], started_at: float, kills: Iterable[Kill]) -> int:
    """Return the number of lost requests that arrived within CHANGE_SECONDS after a kill."""
    moments = list(kills)
    arrivals = [started_at + one["atSeconds"] for one in lost]
    return sum(any(0.0 <= at - kill.before <= CHANGE_SECONDS for kill in moments) for at in arrivals)


class Serving(Part):
    """The ServingJob of the soak and its load."""

    def __init__(
        self, serving: ServingJobs, selector: Mapping[str, str], report: Callable[[str], None]
    ) -> None:
        """`selector`: labels of the nodes that serve."""
        super().__init__(report)
        self.serving = serving
        self.kills: list[Kill] = []
        self.revisions = 1
        self._selector = dict(selector)
        self._stack = ExitStack()
        self._load: Load | None = None
        self.result: dict[str, Any] = {}
        """Report of the load, after it has ended."""
        self._rolled_at = 0.0
        self.upgraded_at = 0.0
        """Unix time at which the upgrade to this checkout's release ended; 0 if there was none."""

    def start(self, seconds: float) -> None:
        """Create the job, wait until it serves, and start a load of at most so many seconds."""
        self.serving.create(NAME, replicas=REPLICAS, roles=[self._role(1)], rollout={"drainSeconds": 10})
        self.serving.wait_rolled(NAME, 240)
        arguments = (f"--timeout={TIMEOUT_SECONDS}", "--no-keep-alive")
        self._load = self._stack.enter_context(load(self.serving.url(NAME), RATE, seconds, *arguments))
        self._rolled_at = time.monotonic()

    def _role(self, seed: int) -> dict[str, Any]:
        role = seeded(seed)
        role["template"]["spec"]["nodeSelector"] = self._selector
        return role

    def check(self, create: bool) -> None:
        """With `create`, roll the next revision when it is due."""
        if not create or time.monotonic() - self._rolled_at < ROLL_SECONDS:
            return
        if self.serving.status(NAME).get("reason") == "RolloutComplete":
            self.serving.patch(NAME, roles=[self._role(self.revisions + 1)])
            self.revisions += 1
            self._rolled_at = time.monotonic()

    def pods(self) -> list[Any]:
        """Return the running pods of the job."""
        return [pod for pod in self.serving.pods(NAME) if pod.status.phase == "Running"]

    def at_rest(self) -> bool:
        """Return True if the newest revision serves."""
        try:
            self.serving.wait_rolled(NAME, 1)
        except (AssertionError, *NO_ANSWER):
            return False
        return True

    def delete(self) -> None:
        """End the load and delete the job."""
        if not self.at_rest():
            self.wrong(f"the newest revision has not rolled: {self.serving.status(NAME)}")
        if self._load is not None:
            self.result = self._load.report()
        self._stack.close()
        try:
            self.serving.delete(NAME)
        except (WaitTimeout, ClusterError) as error:
            self.wrong(str(error)[:300])

    def record(self, found: Figures) -> None:
        """Add the counts of requests."""
        result, report = self.result, self.report_progress
        bad = result["failed"] + result["lost"] + result["unsent"]
        lost = lost_beyond_in_flight(result["failures"], result["startedAt"], self.kills)
        for one in lost[-20:]:
            report(f"request lost {one['atSeconds']:.1f} s after the start: {one['cause']}")
        # The report lists the last failures only.
        unlisted = bad + result["shed"] - len(result["failures"])
        known = sum(result[kind] for kind in Kind)
        found.add(Metric("requests of the load", "requests"), result["scheduled"])
        found.add(Metric("requests with a whole response", "requests"), result["ok"])
        found.add(Metric("requests that were shed", "requests"), result["shed"])
        found.add(Metric("requests lost in flight at a kill", "requests"), bad - len(lost) - unlisted)
        words = "requests lost beyond those in flight at a kill"
        later = [one for one in lost if result["startedAt"] + one["atSeconds"] >= self.upgraded_at]
        # The report lists the last failures, so the unlisted ones came earlier.
        found.add(Metric(f"{words}, before the upgrade", "requests"), len(lost) - len(later) + unlisted)
        found.add(Metric(words, "requests", 0), len(later))
        words = f"of them, arrived within {CHANGE_SECONDS:.0f} s after a kill"
        found.add(Metric(words, "requests"), soon_after(later, result["startedAt"], self.kills))
        found.add(Metric("requests without any outcome", "requests", 0), result["scheduled"] - known)
        found.add(Metric("revisions that were rolled under load", "revisions"), self.revisions - 1)
        found.add(
            Metric("rollouts and deletions of the ServingJob that failed", "count", 0), len(self.unexpected)
        )
        found.add(Metric("killed processes that served", "faults"), len(self.kills))
