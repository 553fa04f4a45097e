"""Latencies of a simulated cluster, in seconds.

The defaults have the order of magnitude of a small real cluster. A scenario can set its own. Each use draws
a random value within 25 % of the latency, see `Kernel.about`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from convoy_controllers.liveness import timings
from convoy_controllers.progress_throttle import PROGRESS_SECONDS
from convoy_controllers.queue_timings import DEBOUNCE_SECONDS
from convoy_crds.meta import Model

Seconds = Annotated[float, Field(ge=0, le=86_400)]


class Latencies(Model):
    """Latencies of the cluster. Those of the training program are in `Program`."""

    api: Seconds = 0.01
    """Duration of one request to the API server."""
    watch: Seconds = 0.02
    """Time from a change at the API server to the watch event."""
    debounce: Seconds = DEBOUNCE_SECONDS
    """Time in which the operator collects changes of pods before it reconciles."""
    schedule: Seconds = 0.05
    """Time until the scheduler binds a pod."""
    pod_start: Seconds = 1.5
    """Time from a pod's binding to its running container: sandbox, volumes, image check."""
    launcher: Seconds = 0.3
    """Time from the container's start to the launcher's first message to the agent."""
    rank_start: Seconds = 0.1
    """Time from an assignment to the start of the ranks' processes."""
    command: Seconds = 0.01
    """Time of a command from the operator to a launcher."""
    report: Seconds = 0.02
    """Time of a report from a launcher to the operator."""
    progress: Seconds = 0.5
    """Age of the steps that the operator knows. Ranks report them once a second."""
    term: Seconds = 0.3
    """Time from SIGTERM to a rank's end."""
    relist: Seconds = 0.5
    """Time from a container's end to its kubelet's report."""
    heartbeat: Seconds = timings.HEARTBEAT_SECONDS
    """Interval between two heartbeats of an agent."""
    dial: Seconds = 0.5
    """Time until an agent has opened a session with the operator."""
    silent: Seconds = timings.SILENT_SECONDS
    """Silence after which an agent counts as absent."""
    farewell: Seconds = timings.UNREADY_SECONDS
    """Longest absence of an agent that announced its restart. A silent agent whose node still answers keeps
    the agent-ready label as long.
    """
    grace: Seconds = timings.GRACE_SECONDS
    """Time in which a new leader declares no agent absent."""
    failover: Seconds = 9.0
    """Time from the operator's crash to the next leader, after the leader's Lease has expired."""
    progress_write: Seconds = PROGRESS_SECONDS
    """Interval between two reconciles and status writes of a job that only record steps."""
    lease: Seconds = timings.KUBELET_LEASE_SECONDS
    """Interval between two renewals of a kubelet's Lease."""
    node_grace: Seconds = 50.0
    """Time without a Lease renewal until a node is NotReady."""
    eviction: Seconds = 300.0
    """Time from NotReady to the eviction of the node's pods."""
    pod_gc: Seconds = 20.0
    """Time from the deletion of a Node object to the deletion of its pods."""
    boot: Seconds = 30.0
    """Time from a node's power to its kubelet and agent."""


def instant() -> Latencies:
    """Return latencies of 0. Timeouts and intervals keep their defaults."""
    limits = {"silent", "farewell", "grace", "node_grace", "eviction", "progress_write", "lease"}
    return Latencies.model_validate(dict.fromkeys(Latencies.model_fields.keys() - limits, 0.0))
