"""Faults on real nodes, and the recovery from each: what the tests assert and the bench measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.cluster.control_plane import COMPONENTS
from e2e.install import NAMESPACE
from e2e.tests.faults import kill_rank
from e2e.tests.jobs import SMALL, Jobs
from e2e.tests.watching import Recovery, Watched, recovery

ENDLESS = {**SMALL, "steps": 1_000_000}
EXAMPLES = files.CHECKOUT / "examples"
STEPPING = ("productive", "recompute")


def apart(job: str, beside: str = "") -> dict[str, Any]:
    """A pod template that puts every pod of the job on a node of its own, one of them `beside` if it can."""
    selector = {"matchLabels": {"convoy.dev/job": job}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    affinity: dict[str, Any] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if beside:
        wish = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [beside]}]}
        wishes = [{"weight": 100, "preference": wish}]
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": wishes}
    return {"spec": {"affinity": affinity}}


@contextmanager
def own_script(jobs: Jobs, name: str) -> Iterator[dict[str, Any]]:
    """The spec of examples/torchrun.yaml without an end; its unchanged script is a ConfigMap meanwhile."""
    body = {"metadata": {"name": name}, "data": {"ddp.py": (EXAMPLES / "ddp.py").read_text()}}
    jobs.core.create_namespaced_config_map(jobs.namespace, body)
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / "torchrun.yaml").read_text())["spec"]
    pod = spec["roles"][0]["template"]["spec"]
    pod["containers"][0]["env"].append({"name": "STEPS", "value": "1000000"})
    pod["volumes"][0]["configMap"]["name"] = name
    pod.update(apart(name)["spec"])
    try:
        yield {"engine": None, **spec}
    finally:
        jobs.core.delete_namespaced_config_map(name, jobs.namespace)


@dataclass(frozen=True)
class Subject:
    """A job that trains, about to be struck."""

    cluster: Cluster
    jobs: Jobs
    name: str
    seen: Watched

    @property
    def pods(self) -> list[Any]:
        """Its pods by index."""
        return self.jobs.pods(self.name)

    def strike(self, blow: Callable[[], None], seconds: float = 60) -> Recovery:
        """Deals a blow and waits until the job makes steps again."""
        status = self.jobs.status(self.name)
        incarnation, before = status["incarnation"], {pod.metadata.uid for pod in self.pods}
        at = time.time()
        blow()

        def back() -> bool:
            now = self.seen.status
            return now.get("incarnation", 0) > incarnation and now["goodput"]["cause"] in STEPPING

        self.seen.until(back, seconds, f"{self.name} makes steps again")
        return recovery(self.seen, at, before, incarnation)

    def kill_rank(self, rank: int = 1) -> Recovery:
        """SIGKILL to one rank."""
        pod = self.pods[rank]
        return self.strike(lambda: kill_rank(self.cluster, pod.spec.node_name, pod.metadata.uid, rank))

    def delete_pod(self, index: int = 1) -> Recovery:
        """`kubectl delete pod`, without its grace."""
        name = self.pods[index].metadata.name
        delete = self.jobs.core.delete_namespaced_pod
        return self.strike(lambda: delete(name, self.jobs.namespace, grace_period_seconds=0))

    def kill_node(self, index: int = 1, seconds: float = 90) -> Recovery:
        """kill -9 of process 1 of the node that holds a pod."""
        node = self.cluster.node(self.pods[index].spec.node_name)
        return self.strike(node.kill, seconds)

    def cut_node(self, index: int = 1, seconds: float = 90) -> Recovery:
        """Pulls the cable of the node that holds a pod."""
        node = self.cluster.node(self.pods[index].spec.node_name)
        return self.strike(node.cut, seconds)


@contextmanager
def training(
    cluster: Cluster, jobs: Jobs, name: str, volume: str | None, *, replicas: int = 2, **spec: Any
) -> Iterator[Subject]:
    """An endless job, its pods on different nodes, that has made steps and, with a volume, a checkpoint."""
    if volume:
        spec.setdefault("checkpoint", {"interval": "2s", "tiers": {"remote": {"claimName": volume}}})
    role = {"name": "worker", "replicas": replicas, "template": apart(name)}
    spec.setdefault("roles", [role])
    spec.setdefault("engine", {"name": "gpt", "params": ENDLESS})
    jobs.create(name, **spec)
    with Watched(jobs, name) as seen:
        try:
            seen.until(
                lambda: (
                    seen.status.get("goodput", {}).get("cause") == "productive"
                    and (not volume or seen.status.get("checkpoint"))
                ),
                120,
                f"{name} trains and has a checkpoint",
            )
            yield Subject(cluster, jobs, name, seen)
        finally:
            restore(cluster)
            if jobs.get(name):
                jobs.delete(name)


def restore(cluster: Cluster) -> None:
    """All nodes are up, plugged in and Ready again, with their agents; and what of the control plane ended
    when it lost its Lease runs again, as a kubelet would have it."""
    for component in COMPONENTS:
        cluster.components.start(component)
    for node in cluster.nodes:
        if node.record.cut:
            node.heal()
        if not node.alive:
            node.reboot()
    cluster.wait_ready(deadline=180)
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "ds/convoy-agent", "--timeout=120s", deadline=130)
    deadline = time.monotonic() + 60
    while len(labelled(cluster)) < len(cluster.nodes):
        if time.monotonic() > deadline:
            raise AssertionError(f"agents are ready only on {labelled(cluster)}")
        time.sleep(0.3)


def labelled(cluster: Cluster) -> list[str]:
    """Nodes that carry the agent-ready label."""
    return cluster.kubectl("get", "nodes", "-l", "convoy.dev/agent-ready=true", "-o", "name").split()


def holder(cluster: Cluster) -> str:
    """Who leads, as the Lease says; empty when nobody does."""
    return cluster.kubectl(
        "-n", NAMESPACE, "get", "lease", "convoy-operator", "-o", "jsonpath={.spec.holderIdentity}"
    )


def leader(cluster: Cluster) -> tuple[str, str]:
    """The leading operator: pod and node."""
    leads = holder(cluster)
    for pod in cluster.get("-n", NAMESPACE, "pods")["items"]:
        if pod["metadata"]["name"] in leads:
            return pod["metadata"]["name"], pod["spec"]["nodeName"]
    raise AssertionError(f"no pod is the holder {leads!r}")
