"""Spot nodes that a trace takes and returns, under a TrainingJob of the engine spotlight."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from convoy_crds.meta import API_VERSION
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.spotlight.request_counts import from_metrics
from convoy_workloads.spot.trace import SECONDS_PER_HOUR
from e2e.bench.soak.part import Part
from e2e.cluster.errors import ClusterError
from e2e.drive.jobs import Jobs
from e2e.drive.spot_nodes import Account, Act, LocalProvider, following
from e2e.drive.spotlight_job import (
    SPOT,
    check_requests,
    create,
    metrics,
    pool_spec,
    spend,
    trace,
)

NAME = "spotlight"
STEP_SECONDS = 240.0
"""Maximum time from the last fault to the next iteration."""
PERIOD_SECONDS = 120.0
"""Time between two losses of spot nodes."""
RETRY_SECONDS, DELAY_SECONDS = 120.0, 2.0
"""Time for which an act of the provider is tried again while the API server is down, and between tries."""


class PatientProvider(LocalProvider):
    """A provider that tries an act again while the API server is down."""

    def lose(self, node: str) -> None:
        """Crash a node and delete its Node object."""
        until_it_works(lambda: super(PatientProvider, self).lose(node))

    def give(self, node: str) -> None:
        """Start a node that is down, and label it."""
        until_it_works(lambda: super(PatientProvider, self).give(node))

    def notice(self, node: str, deadline: float) -> None:
        """Announce the loss of a node."""
        until_it_works(lambda: super(PatientProvider, self).notice(node, deadline))


def until_it_works(act: Callable[[], None]) -> None:
    """Try an act again while it raises ClusterError. Raises it after RETRY_SECONDS."""
    until = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return act()
        except ClusterError:
            if time.monotonic() > until:
                raise
        time.sleep(DELAY_SECONDS)


class Spot(Part):
    """The SpotPool of the soak, its nodes, and the job that harvests them."""

    def __init__(self, jobs: Jobs, nodes: Sequence[str], report: Callable[[str], None]) -> None:
        """`nodes`: the two spot nodes, with their label."""
        super().__init__(report)
        self.jobs = jobs
        self.account = Account()
        self._nodes = list(nodes)
        self._stack = ExitStack()
        self._paid_before = 0.0
        self._paid = 0.0
        self._steps = 0
        self._unobserved = 0.0

    def start(self, seconds: float) -> None:
        """Create pool and job. As soon as the job runs, take and return nodes for so many seconds."""
        body = {"apiVersion": API_VERSION, "kind": "SpotPool", "metadata": {"name": NAME}}
        text = json.dumps({**body, "spec": pool_spec(self.jobs.namespace)})
        self.jobs.cluster.kubectl("apply", "-f", "-", text=text)
        create(self.jobs, NAME, NAME, 300, steps=1_000_000)
        self.jobs.wait(lambda: self.jobs.status(NAME).get("independent") == "2/2", 300, "both spot pods run")
        self._paid_before = spend(self.jobs.cluster, NAME)
        provider = PatientProvider(self.jobs.cluster, SPOT)
        self.account = self._stack.enter_context(
            following(trace(seconds, PERIOD_SECONDS), self._nodes, provider)
        )

    def check(self, create: bool) -> None:
        """Check that the job goes on."""
        status = self.jobs.status(NAME)
        if status.get("phase") in ("Succeeded", "Failed"):
            self.wrong(f"{NAME} ended with {status['reason']}: {status['message']}")

    def at_rest(self) -> bool:
        """Return True: the job goes on until it is deleted."""
        return True

    def end(self) -> None:
        """Return all nodes, and check the requests."""
        try:
            self._stack.close()
        except AssertionError as error:
            self.wrong(str(error))
        self._paid = spend(self.jobs.cluster, NAME) - self._paid_before
        try:
            # A drain may have restarted the trainer shortly before.
            self.jobs.wait(self._progress, STEP_SECONDS, f"{NAME} makes a step")
            progress = self._progress()
            values = metrics(progress)
            self._steps = progress["step"]
            check_requests(self._steps, int(values["trained_samples"]), from_metrics(values))
        except AssertionError as error:
            self.wrong(f"requests of {NAME}: {error}")
        cost = self.jobs.cluster.get("spotpools", NAME)["status"]["cost"]
        self._unobserved = cost["residual"] * SECONDS_PER_HOUR

    def _progress(self) -> dict[str, Any]:
        """Return the progress of the job; empty before its first step."""
        return self.jobs.status(NAME).get("progress") or {}

    def delete(self) -> None:
        """Delete job and pool."""
        self.jobs.delete(NAME)
        self.jobs.cluster.kubectl("delete", "spotpool", NAME)

    def record(self, found: Figures) -> None:
        """Add the counts of nodes and iterations, and the bill."""
        found.add(Metric("spot nodes that were lost", "nodes"), self.account.counts[Act.LOSE])
        found.add(Metric("of them with a notice", "nodes"), self.account.counts[Act.NOTICE])
        found.add(Metric("iterations of spotlight", "iterations"), self._steps)
        billed = (
            self._paid * SECONDS_PER_HOUR / self.account.node_seconds - 1
            if self.account.node_seconds
            else 0.0
        )
        found.add(Metric("spot bill, beyond the provider's node-seconds", "ratio"), billed)
        found.add(Metric("node-seconds without an operator that watched", "seconds"), self._unobserved)
        found.add(Metric("wrong requests or ends of spotlight", "count", 0), len(self.unexpected))
