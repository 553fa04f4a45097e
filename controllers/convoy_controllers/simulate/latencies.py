"""How long things take in a simulated cluster, in seconds.

Defaults are of the order that a small cluster of real nodes shows; a scenario states its own. Each is drawn
anew within a quarter around its value, see `Kernel.about`.
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
    """Durations of the cluster itself; those of the training program stand in `Program`."""

    api: Seconds = 0.01
    """One request to the API server."""
    watch: Seconds = 0.02
    """From a change at the API server to those that watch it."""
    debounce: Seconds = DEBOUNCE_SECONDS
    """For which the operator gathers news of pods before it looks."""
    schedule: Seconds = 0.05
    """The scheduler's choice of a node."""
    pod_start: Seconds = 1.5
    """From a pod's binding to its running container: sandbox, volumes, image check."""
    launcher: Seconds = 0.3
    """From the container's start to its launcher's first words to the agent."""
    rank_start: Seconds = 0.1
    """From an assignment to the ranks' processes."""
    command: Seconds = 0.01
    """From the operator to a launcher."""
    report: Seconds = 0.02
    """From a launcher to the operator."""
    progress: Seconds = 0.5
    """The age of the steps that the operator knows of: they are told once a second."""
    term: Seconds = 0.3
    """From SIGTERM to a rank's end."""
    relist: Seconds = 0.5
    """From the end of a container to its kubelet's report."""
    heartbeat: Seconds = timings.HEARTBEAT_SECONDS
    """Between two signs of an agent."""
    dial: Seconds = 0.5
    """An agent's way to a new session with the operator."""
    silent: Seconds = timings.SILENT_SECONDS
    """Silence after which an agent is not there any more."""
    farewell: Seconds = timings.UNREADY_SECONDS
    """How long an agent that said goodbye may be away; and a silent one on a node that answers keeps its
    label."""
    grace: Seconds = timings.GRACE_SECONDS
    """For which a new leader judges nobody."""
    failover: Seconds = 9.0
    """From the operator's crash to the next leader: its Lease has to run out."""
    progress_write: Seconds = PROGRESS_SECONDS
    """Between two looks at a job, and two writes of its status, that bring nothing but steps."""
    lease: Seconds = timings.KUBELET_LEASE_SECONDS
    """Between two renewals of a kubelet's Lease."""
    node_grace: Seconds = 50.0
    """Without a sign of a kubelet until its node is NotReady."""
    eviction: Seconds = 300.0
    """From NotReady to the deletion of the node's pods."""
    pod_gc: Seconds = 20.0
    """From the deletion of a Node object to that of its pods."""
    boot: Seconds = 30.0
    """From a node's power to its kubelet and agent."""


def instant() -> Latencies:
    """Everything at once, but for the limits that are no latencies."""
    limits = {"silent", "farewell", "grace", "node_grace", "eviction", "progress_write", "lease"}
    return Latencies.model_validate(dict.fromkeys(Latencies.model_fields.keys() - limits, 0.0))
