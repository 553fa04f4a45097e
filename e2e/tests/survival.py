"""Faults on real nodes, and the recovery from each: what the tests assert and the bench measures."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml
from kubernetes.client import ApiException

from convoy_controllers.checkpoint.generation import Generation
from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.cluster.control_plane import COMPONENTS
from e2e.install import NAMESPACE
from e2e.tests.faults import kill_rank
from e2e.tests.jobs import SMALL, Jobs, memory
from e2e.tests.watching import Recovery, Watched, recovery

ENDLESS = {**SMALL, "steps": 1_000_000}
EXAMPLES = files.CHECKOUT / "examples"
STEPPING = ("productive", "recompute")
_RESTORED = re.compile(r"\[(\d+)/\d+\].*continues after step \d+ from gen-(\d+)-(\d+)")
_STATE = re.compile(r"state after step \d+: sha256 (\w+)")


def step(jobs: Jobs, name: str) -> int:
    """The last step that a job has told of; 0 before there is one."""
    return int((jobs.status(name).get("progress") or {}).get("step", 0))


def pace(jobs: Jobs, name: str, steps: int = 50) -> float:
    """Seconds of a step, over so many that are to come, by what a job tells of them."""

    def far() -> dict[str, Any] | None:
        told: dict[str, Any] = jobs.status(name)["progress"]
        return told if told["step"] >= first["step"] + steps else None

    first = jobs.status(name)["progress"]
    last = jobs.wait(far, 600, f"{steps} steps")
    took = datetime.fromisoformat(last["time"]) - datetime.fromisoformat(first["time"])
    return float(took.total_seconds() / (last["step"] - first["step"]))


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

    @property
    def restored(self) -> dict[int, Generation]:
        """By incarnation, what its rank 0 says that it goes on from, as far as its pod is still there."""
        found = {}
        for pod in self.pods:
            try:
                log = self.jobs.log(pod.metadata.name)
            except ApiException:
                continue  # it has no container yet
            for into, incarnation, step in _RESTORED.findall(log):
                found[int(into)] = Generation(int(incarnation), int(step))
        return found

    def told(self, *tiers: str) -> Generation | None:
        """The newest generation that its status promises at any of these tiers."""
        marks = [watermark(self.jobs.status(self.name), tier) for tier in tiers]
        known = [Generation(mark["incarnation"], mark["step"]) for mark in marks if mark]
        return max(known, default=None)

    def strike(
        self,
        blow: Callable[[], None],
        seconds: float = 60,
        spared: tuple[str, ...] = ("local", "peer", "remote"),
    ) -> Recovery:
        """Deals a blow and waits until the job makes steps again, from nothing older than what its status had
        promised at the tiers that the blow has `spared`.
        """
        status = self.jobs.status(self.name)
        incarnation, before = status["incarnation"], {pod.metadata.uid for pod in self.pods}
        promised = self.told(*spared)
        at = time.time()
        blow()

        def back() -> bool:
            now = self.seen.status
            return now.get("incarnation", 0) > incarnation and now["goodput"]["cause"] in STEPPING

        self.seen.until(back, seconds, f"{self.name} makes steps again")
        if promised:
            into, restored = self.seen.status["incarnation"], self.restored
            assert into in restored and restored[into] >= promised, (into, promised, restored)
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
        """kill -9 of process 1 of the node that holds a pod; its memory is lost."""
        node = self.cluster.node(self.pods[index].spec.node_name)
        return self.strike(node.kill, seconds, ("peer", "remote"))

    def cut_node(self, index: int = 1, seconds: float = 90) -> Recovery:
        """Pulls the cable of the node that holds a pod; nobody reaches its memory."""
        node = self.cluster.node(self.pods[index].spec.node_name)
        return self.strike(node.cut, seconds, ("peer", "remote"))


def watermark(status: dict[str, Any], tier: str) -> dict[str, Any] | None:
    """The newest generation at a tier, by a job's status."""
    found: dict[str, Any] | None = ((status.get("checkpoint") or {}).get("watermarks") or {}).get(tier)
    return found


def state(jobs: Jobs, name: str, seconds: float = 300) -> str:
    """The digest of every weight and every moment of the optimizer that rank 0 prints at the end of a job."""
    jobs.wait_phase(name, "Succeeded", seconds)
    found = _STATE.findall(jobs.log(f"{name}-worker-0"))
    assert found
    return str(found[-1])


@contextmanager
def training(cluster: Cluster, jobs: Jobs, name: str, *, replicas: int = 2, **spec: Any) -> Iterator[Subject]:
    """An endless job, its pods on different nodes, that has made steps and, if it is of an engine, has a
    checkpoint at each of its tiers: in memory, unless `spec` says otherwise.
    """
    role = {"name": "worker", "replicas": replicas, "template": apart(name)}
    spec.setdefault("roles", [role])
    spec.setdefault("engine", {"name": "gpt", "params": ENDLESS})
    if spec["engine"]:
        spec.setdefault("checkpoint", memory())
    tiers = spec.get("checkpoint", {}).get("tiers", {})
    jobs.create(name, **spec)
    with Watched(jobs, name) as seen:
        try:
            seen.until(
                lambda: (
                    seen.status.get("goodput", {}).get("cause") == "productive"
                    and all(watermark(seen.status, tier) for tier in tiers)
                ),
                120,
                f"{name} trains and has its checkpoints",
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
