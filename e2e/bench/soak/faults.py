"""Random faults of the soak."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kubernetes import client

from convoy_crds.perturbations import PerturbationKind
from e2e.bench.soak.part import NO_ANSWER
from e2e.bench.soak.serving import REPLICAS, Kill, Serving
from e2e.bench.soak.training import Training
from e2e.cluster.cluster import Cluster
from e2e.drive.cluster_state import leader, start_components
from e2e.drive.faults import kill_processes
from e2e.drive.perturbations import PodTarget, inject
from e2e.drive.serving_jobs import is_ready

OUTAGE_SECONDS = 10.0
"""Length of an outage of the API server."""
PROCESS_FAULTS = ("agent", "operator", "operator", "api")
"""Faults that restart Convoy's own processes. A leader that cannot renew its Lease exits, so an API outage is
one of them.
"""


@dataclass
class Faults:
    """Injects faults into the parts of the soak, and counts them."""

    cluster: Cluster
    training: Training
    serving: Serving
    stable: list[str]
    """Nodes that the trace does not take."""
    rng: random.Random
    report: Callable[[str], None]
    counts: dict[str, int] = field(default_factory=dict)

    def inject(self, processes: bool) -> None:
        """Inject a random fault, and undo it. With `processes`, it may be one of PROCESS_FAULTS."""
        names = ("rank", "pod", "replica", "eviction", "drain", *(PROCESS_FAULTS if processes else ()))
        fault = self.rng.choice(names)
        self.report(f"fault: {fault}")
        try:
            getattr(self, f"_{fault}")()
        except (AssertionError, *NO_ANSWER) as error:
            # The pod, node or process that the fault needs has disappeared in the meantime.
            self.report(f"fault {fault} was not injected: {str(error)[:200]}")
            return
        finally:
            start_components(self.cluster)
        self.counts[fault] = self.counts.get(fault, 0) + 1

    def _one_of(self, pods: list[Any]) -> Any:
        if not pods:
            raise AssertionError("no pod of these jobs is Running")
        return self.rng.choice(pods)

    def _rank(self) -> None:
        pod = self._one_of(self.training.pods())
        index = int(pod.metadata.labels["convoy.dev/index"])
        with inject(PerturbationKind.KILL_RANK, 1, PodTarget.of(self.cluster, pod, index)):
            pass

    def _pod(self) -> None:
        pod, delete = self._one_of(self.training.pods()), self.training.jobs.core.delete_namespaced_pod
        own = partial(delete, pod.metadata.name, self.training.jobs.namespace)
        target = replace(PodTarget.of(self.cluster, pod), delete=own)
        with inject(PerturbationKind.KILL_POD, 1, target):
            pass

    def _replica(self) -> None:
        """Kill the process of a replica while the others serve."""
        pods = self.serving.pods()
        if not all(map(is_ready, pods)) or len(pods) < REPLICAS:
            raise AssertionError("another replica is away")
        pod = self._one_of(pods)
        began = time.time()
        with inject(PerturbationKind.KILL_RANK, 1, PodTarget.of(self.cluster, pod)):
            self.serving.kills.append(Kill(began, time.time()))

    def _eviction(self) -> None:
        """Evict the pod of a replica, as a drain does. It must end its requests."""
        pod = self._one_of(self.serving.pods())
        metadata = client.V1ObjectMeta(name=pod.metadata.name, namespace=self.serving.serving.namespace)
        self.serving.serving.core.create_namespaced_pod_eviction(
            metadata.name, metadata.namespace, client.V1Eviction(metadata=metadata)
        )

    def _drain(self) -> None:
        """Drain a node with a pod of a job, and uncordon it."""
        node = self._one_of([*self.training.pods(), *self.serving.pods()]).spec.node_name
        arguments = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s"]
        selector = "--pod-selector=convoy.dev/job"
        try:
            self.cluster.kubectl("drain", node, *arguments, selector, deadline=70)
        finally:
            self.cluster.kubectl("uncordon", node)

    def _agent(self) -> None:
        kill_processes(self.cluster.node(self.rng.choice(self.stable)), "convoy-agent")

    def _operator(self) -> None:
        kill_processes(self.cluster.node(leader(self.cluster)[1]), "convoy-operator")

    def _api(self) -> None:
        self.cluster.components.stop("kube-apiserver")
        time.sleep(OUTAGE_SECONDS)
