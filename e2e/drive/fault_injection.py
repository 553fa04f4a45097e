"""Injects faults into real nodes and measures how jobs recover, for tests and for a bench."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kubernetes.client import ApiException

from convoy_controllers.checkpoint.generation import Generation
from convoy_crds.perturbations import PerturbationKind
from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node
from e2e.drive.cluster_state import restore
from e2e.drive.job_progress import watermark
from e2e.drive.job_specs import ENDLESS, memory, on_separate_nodes
from e2e.drive.job_watch import JobWatch
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import PodTarget, inject
from e2e.drive.recovery import Recovery, recovery

STEPPING = ("productive", "recompute")
_RESTORED = re.compile(r"\[(\d+)/\d+\].*continues after step \d+ from gen-(\d+)-(\d+)")


@dataclass(frozen=True)
class JobUnderTest:
    """A running training job into which tests inject faults."""

    cluster: Cluster
    jobs: Jobs
    name: str
    watch: JobWatch

    @property
    def pods(self) -> list[Any]:
        """The job's pods, in the order of their index label."""
        return self.jobs.pods(self.name)

    @property
    def restored(self) -> dict[int, Generation]:
        """The generation that rank 0 continued from, by incarnation. Missing if rank 0's pod no longer
        exists.
        """
        found = {}
        for pod in self.pods:
            try:
                log = self.jobs.log(pod.metadata.name)
            except ApiException:
                continue  # A pod without a container has no log.
            for into, incarnation, step in _RESTORED.findall(log):
                found[int(into)] = Generation(int(incarnation), int(step))
        return found

    def newest_watermark(self, *tiers: str) -> Generation | None:
        """Return the newest generation that the job's status lists for any of these tiers, or None."""
        marks = [watermark(self.jobs.status(self.name), tier) for tier in tiers]
        known = [Generation(mark["incarnation"], mark["step"]) for mark in marks if mark]
        return max(known, default=None)

    def recovery_from(
        self,
        fault: AbstractContextManager[object],
        seconds: float = 60,
        surviving_tiers: tuple[str, ...] = ("local", "peer", "remote"),
    ) -> Recovery:
        """Enter the context of a fault and wait until the job makes steps again. Return the stages of the
        recovery.

        Asserts that the job continued from a generation at least as new as the newest one that the job's
        status listed before the fault for any of `surviving_tiers`.
        """
        status = self.jobs.status(self.name)
        incarnation, before = status["incarnation"], {pod.metadata.uid for pod in self.pods}
        promised = self.newest_watermark(*surviving_tiers)
        at = time.time()

        def back() -> bool:
            now = self.watch.status
            return now.get("incarnation", 0) > incarnation and now["goodput"]["cause"] in STEPPING

        with fault:
            self.watch.until(back, seconds, f"{self.name} makes steps again")
        if promised:
            into, restored = self.watch.status["incarnation"], self.restored
            assert into in restored and restored[into] >= promised, (into, promised, restored)
        return recovery(self.watch, at, before, incarnation)

    def kill_rank(self, rank: int = 1) -> Recovery:
        """Send SIGKILL to a rank."""
        target = PodTarget.of(self.cluster, self.pods[rank], rank)
        return self.recovery_from(inject(PerturbationKind.KILL_RANK, 1, target))

    def delete_pod(self, index: int = 1) -> Recovery:
        """Delete a pod without a grace period."""
        pod, delete = self.pods[index], self.jobs.core.delete_namespaced_pod
        own = partial(delete, pod.metadata.name, self.jobs.namespace, grace_period_seconds=0)
        target = replace(PodTarget.of(self.cluster, pod), delete=own)
        return self.recovery_from(inject(PerturbationKind.KILL_POD, 1, target))

    def kill_node(self, index: int = 1, seconds: float = 90) -> Recovery:
        """Crash the node of pod `index`, so that the node's memory is lost. Wait at most `seconds` for the
        recovery, and return its stages.
        """
        target = PodTarget.of(self.cluster, self.pods[index])
        return self.recovery_from(inject(PerturbationKind.NODE_LOSS, 1, target), seconds, ("peer", "remote"))

    def cut_node(self, index: int = 1, seconds: float = 90) -> Recovery:
        """Cut the node of pod `index` off the network, so that no other node can reach the memory of this
        node. Wait at most `seconds` for the recovery, and return its stages.
        """
        node = self.cluster.node(self.pods[index].spec.node_name)
        return self.recovery_from(_cut(node), seconds, ("peer", "remote"))


@contextmanager
def _cut(node: Node) -> Iterator[None]:
    """Cut a node off the network. `restore` reconnects it."""
    node.cut()
    yield


@contextmanager
def training_job(
    cluster: Cluster, jobs: Jobs, name: str, *, replicas: int = 2, **spec: Any
) -> Iterator[JobUnderTest]:
    """Yield an endless job that makes steps, with its pods on different nodes.

    With an engine, the job also has a checkpoint in each of its tiers: in memory, unless `spec` names other
    tiers.
    """
    role = {"name": "worker", "replicas": replicas, "template": on_separate_nodes(name)}
    spec.setdefault("roles", [role])
    spec.setdefault("engine", {"name": "gpt", "params": ENDLESS})
    if spec["engine"]:
        spec.setdefault("checkpoint", memory())
    tiers = spec.get("checkpoint", {}).get("tiers", {})
    jobs.create(name, **spec)
    with JobWatch(jobs, name) as watch:
        try:
            watch.until(
                lambda: (
                    watch.status.get("goodput", {}).get("cause") == "productive"
                    and all(watermark(watch.status, tier) for tier in tiers)
                ),
                120,
                f"{name} trains and has a checkpoint in each tier",
            )
            yield JobUnderTest(cluster, jobs, name, watch)
        finally:
            restore(cluster)
            if jobs.get(name):
                jobs.delete(name)


@contextmanager
def undisturbed(job: JobUnderTest) -> Iterator[None]:
    """Assert that the job keeps its pods and its incarnation while the block runs."""
    before, pods = job.jobs.status(job.name), {pod.metadata.uid for pod in job.pods}
    yield
    after = job.jobs.status(job.name)
    assert (after["phase"], after["incarnation"]) == ("Running", before["incarnation"])
    assert after["restarts"]["total"] == before["restarts"]["total"]
    assert {pod.metadata.uid for pod in job.pods} == pods
