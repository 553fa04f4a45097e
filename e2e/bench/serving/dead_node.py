"""Measures the death of a replica's node: when its pods stop being ready, and which requests fail."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from e2e.cluster.cluster import Cluster
from e2e.drive.cluster_state import leader, restore
from e2e.drive.serving_jobs import Failure, ServingJobs, apart, failures_after, is_ready, load

RATE = 20.0
"""Requests per second, each on a connection of its own.

The kernel tries about 3,000 source ports before it uses one again. Connection tracking remembers for 120 s
which replica an unanswered connection was sent to, and sends a connection from the same source port there
too. So with more than 25 connections per second, requests would fail for minutes after the death.
"""
LIMIT = 120.0
"""Maximum number of seconds until the cluster itself has noticed the death."""
QUIET_SECONDS = 15.0
"""Seconds for which the load goes on after that. So its end is no cause of what happens then."""
_TITLE = "death of a replica's node"


@dataclass
class Timeline:
    """Changes after a fault, and the times at which something was seen for the first time."""

    at: float
    """Unix time in seconds of the fault."""
    seconds: dict[str, float] = field(default_factory=dict)
    lines: list[tuple[float, str]] = field(default_factory=list)
    _states: dict[str, str] = field(default_factory=dict)

    def see(self, name: str, holds: bool) -> bool:
        """Record the time at which something holds for the first time. Return True once it is known."""
        if holds and name not in self.seconds:
            self.seconds[name] = time.time() - self.at
        return name in self.seconds

    def record(self, what: str, state: str) -> None:
        """Record the state of something, if it differs from the last one."""
        if self._states.get(what) != state:
            self._states[what] = state
            self.lines.append((time.time() - self.at, f"{what}: {state}"))

    def record_pods(self, pods: Iterable[Any]) -> None:
        """Record the states of all pods."""
        found = {f"pod {pod.metadata.name} on {pod.spec.node_name}": _state(pod) for pod in pods}
        gone = {what: "gone" for what in self._states if what.startswith("pod ")}
        for what, state in (gone | found).items():
            self.record(what, state)


def dead_node(cluster: Cluster, jobs: ServingJobs, found: Figures) -> None:
    """Kill the node of a replica. Measure when its pods stop being ready, beside a pod of a Deployment on the
    same node, and when the last request failed.
    """
    jobs.create("dead", replicas=2, roles=[apart("dead")])
    jobs.wait_rolled("dead")
    # The machine's own requests pass through the first node's kube-proxy.
    spared = {leader(cluster)[1], cluster.nodes[0].name}
    victim = next(pod.spec.node_name for pod in jobs.pods("dead") if pod.spec.node_name not in spared)
    _plain(cluster, jobs, victim)
    before = {pod.metadata.uid for pod in jobs.pods("dead") if pod.spec.node_name == victim}
    try:
        with load(jobs.url("dead"), RATE, 600, "--timeout=5", "--no-keep-alive") as running:
            _pass(jobs, 5, "requests arrive")
            timeline = Timeline(time.time())
            threading.Thread(target=cluster.node(victim).kill, daemon=True).start()
            jobs.wait(lambda: _noticed(jobs, timeline, victim, before), LIMIT, "no pod is ready there")
            end = time.time() + QUIET_SECONDS
            jobs.wait(
                lambda: _noticed(jobs, timeline, victim, before) and time.time() > end,
                60,
                "two replicas serve",
            )
            report = running.report()
    finally:
        restore(cluster)
    failures = failures_after(report, timeline.at)
    for line in account(timeline, failures, report, _events(jobs, timeline.at)):
        cluster.progress.report(line)
    own = f"{_TITLE}: a Deployment's pod is not ready (the cluster's own time)"
    found.add(Metric(own, "seconds"), timeline.seconds["plain"])
    found.add(
        Metric(f"{_TITLE}: its pods are not ready", "seconds", 10, baseline=own), timeline.seconds["ours"]
    )
    found.add(Metric(f"{_TITLE}: as many replicas as before serve", "seconds"), timeline.seconds["restored"])
    add_failures(found, report, failures)
    jobs.delete("dead")
    jobs.cluster.kubectl("-n", jobs.namespace, "delete", "deployment", "plain", "--wait=false")


def _pass(jobs: ServingJobs, seconds: float, what: str) -> None:
    """Let a time pass."""
    end = time.monotonic() + seconds
    jobs.wait(lambda: time.monotonic() > end, seconds + 5, what)


def _noticed(jobs: ServingJobs, timeline: Timeline, victim: str, before: set[str]) -> bool:
    """Add the present state to the timeline. Return True if the pods of the dead node are not ready, and as
    many replicas as before serve. `before`: uids of the job's pods that were on the node.
    """
    pods = jobs.pods("dead")
    timeline.record_pods(pods)
    timeline.record("endpoints", ", ".join(jobs.endpoints("dead")) or "none")
    ours = [pod for pod in pods if pod.metadata.uid in before]
    unready = timeline.see("ours", not any(map(is_ready, ours)))
    restored = timeline.see("restored", unready and sum(map(is_ready, pods)) >= 2)
    plain = timeline.see("plain", not any(map(is_ready, _plain_pods(jobs, victim))))
    return restored and plain


def _state(pod: Any) -> str:
    leaving = ", is being deleted" if pod.metadata.deletion_timestamp else ""
    return ("ready" if is_ready(pod) else "not ready") + leaving


def _events(jobs: ServingJobs, at: float) -> list[tuple[float, str]]:
    """Return the Events of the namespace after a Unix time, in seconds after it."""
    found = []
    for event in jobs.core.list_namespaced_event(jobs.namespace).items:
        last = event.last_timestamp or event.event_time
        if last is not None and last.timestamp() >= at:
            target = event.involved_object
            text = f"Event {event.reason} of {target.kind} {target.name}: {event.message}"
            found.append((last.timestamp() - at, text))
    return found


def account(
    timeline: Timeline, failures: Iterable[Failure], report: dict[str, Any], events: list[tuple[float, str]]
) -> list[str]:
    """Return the lines that explain when and why requests failed: the changes of pods and endpoints, the
    failures by second, and the Events. Times are seconds after the fault.
    """
    seconds = Counter((math.floor(one.seconds), one.outcome, one.cause) for one in failures)
    failed = [(float(at), f"{count} x {kind}: {cause}") for (at, kind, cause), count in seconds.items()]
    ordered = sorted([*timeline.lines, *failed, *events])
    delay = report["clientDelayMs"]
    return [
        *(f"{at:7.2f} s  {text}" for at, text in ordered),
        f"the client sent requests late by {delay['p99']} ms (p99) and {delay['max']} ms (maximum)",
    ]


def add_failures(found: Figures, report: dict[str, Any], failures: Sequence[Failure]) -> None:
    """Add the rows about requests that failed."""
    last = max((one.seconds for one in failures), default=0.0)
    found.add(Metric(f"{_TITLE}: the last request that failed had arrived after", "seconds", 15), last)
    failed = report["scheduled"] - report["ok"]
    found.add(Metric(f"{_TITLE}: requests without a complete response", "requests"), failed)
    known = sum(report[kind] for kind in ("ok", "shed", "failed", "lost", "unsent"))
    found.add(Metric(f"{_TITLE}: requests without any outcome", "requests", 0), report["scheduled"] - known)


def _plain(cluster: Cluster, jobs: ServingJobs, node: str) -> None:
    """Run a pod of a Deployment on a node, and wait until it is ready."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "plain",
        "image": "convoy/torch:dev",
        "command": ["sleep", "3600"],
        "imagePullPolicy": "Never",
        "securityContext": security,
    }
    labels = {"app": "plain"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeName": node}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "plain", "namespace": jobs.namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    jobs.wait(lambda: any(is_ready(pod) for pod in _plain_pods(jobs, node)), 60, "the plain pod is ready")


def _plain_pods(jobs: ServingJobs, node: str) -> list[Any]:
    found = jobs.core.list_namespaced_pod(jobs.namespace, label_selector="app=plain").items
    return [pod for pod in found if pod.spec.node_name == node]
