"""Latencies of a simulated cluster, in seconds.

The defaults have the order of magnitude of a small real cluster. A scenario can set its own values. Each
use draws a random value within 25 % of the latency (`Kernel.about`).
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
    """Latencies of a cluster. `Program` has those of the training program."""

    api: Seconds = 0.01
    """Duration of a request to the API server."""
    watch: Seconds = 0.02
    """Time from a change at the API server to the watch event."""
    debounce: Seconds = DEBOUNCE_SECONDS
    """Time for which the operator collects changes of pods before it reconciles."""
    schedule: Seconds = 0.05
    """Time until the scheduler binds a pending pod."""
    pod_start: Seconds = 1.5
    """Time from a pod's binding until its container runs. It includes the sandbox, the volumes and the
    check of the image.
    """
    launcher: Seconds = 0.3
    """Time from a container's start to the launcher's first message to the agent."""
    rank_start: Seconds = 0.1
    """Time from an assignment to the start of the ranks' processes."""
    command: Seconds = 0.01
    """Time that a command needs from the operator to a launcher."""
    report: Seconds = 0.02
    """Time that a report needs from a launcher to the operator."""
    progress: Seconds = 0.5
    """Delay until the operator knows a rank's step. The default is the mean delay if ranks report steps
    once a second.
    """
    probe: Seconds = 1.0
    """Interval of the kubelet's readiness probes of serving pods. Two probes in a row must fail before a pod
    is not ready.
    """
    endpoints: Seconds = 1.0
    """Time from a change of a pod's readiness until all proxies know it."""
    model: Seconds = 3.0
    """Time that an agent takes to read a model from its store and to put it into a pod."""
    term: Seconds = 0.3
    """Time from SIGTERM to a rank's end."""
    relist: Seconds = 0.5
    """Time from a container's end to the kubelet's report of it."""
    heartbeat: Seconds = timings.HEARTBEAT_SECONDS
    """Interval between two heartbeats of an agent."""
    dial: Seconds = 0.5
    """Time that an agent needs to open a session with the operator."""
    silent: Seconds = timings.SILENT_SECONDS
    """Time without a heartbeat after which an agent counts as absent."""
    farewell: Seconds = timings.UNREADY_SECONDS
    """Time for which an agent that announced its restart counts as present without a heartbeat.

    The same time applies to a node whose agent is silent but which still answers probes. The node keeps its
    agent-ready label for this time.
    """
    grace: Seconds = timings.GRACE_SECONDS
    """Time after its start in which a new leader declares no agent absent."""
    failover: Seconds = 9.0
    """Time from the operator's crash to the next leader. The crashed leader's Lease must expire first."""
    progress_write: Seconds = PROGRESS_SECONDS
    """Interval between two status writes of a job that only record steps."""
    lease: Seconds = timings.KUBELET_LEASE_SECONDS
    """Interval between two renewals of a kubelet's Lease."""
    node_grace: Seconds = 50.0
    """Time without a Lease renewal after which a node becomes NotReady."""
    eviction: Seconds = 300.0
    """Time from NotReady to the eviction of the node's pods."""
    pod_gc: Seconds = 20.0
    """Time from the deletion of a Node object to the deletion of the node's pods."""
    boot: Seconds = 30.0
    """Time from power-on of a machine to the start of its kubelet and agent."""


def instant() -> Latencies:
    """Return latencies that are all 0. Timeouts and intervals keep their defaults."""
    limits = {"silent", "farewell", "grace", "node_grace", "eviction", "progress_write", "lease"}
    return Latencies.model_validate(dict.fromkeys(Latencies.model_fields.keys() - limits, 0.0))
