"""The description of ServingJobs for simulated clusters and scenario files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convoy_controllers.servingjob.controller import CONTROLLER
from convoy_controllers.simulate.job_kind import JobKind
from convoy_controllers.simulate.serving.jobs import ServingJobs, engine_names
from convoy_controllers.simulate.serving.monitor import ServingMonitor
from convoy_controllers.simulate.serving.program import ServingProgram
from convoy_crds.servingjob import ServingJob
from convoy_crds.terms import ROLE_ACTIVATOR

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster


def _engines(job: ServingJob) -> dict[str, str]:
    return dict.fromkeys(engine_names(job), "Serving")


def _has_pod(job: ServingJob, name: str) -> bool:
    """Return True if a replica of the job may have a pod of this name: `<job>-<role>-<number>-<slot>`."""
    sizes = {role.name: role.group_size for role in job.spec.roles} | {ROLE_ACTIVATOR: 1}
    for role, size in sizes.items():
        prefix = f"{job.metadata.name}-{role}-"
        number, dash, index = name.removeprefix(prefix).partition("-")
        if name.startswith(prefix) and dash and number.isdecimal() and index.isdecimal():
            return int(index) < size
    return False


def _monitor(cluster: Cluster) -> ServingMonitor:
    return ServingMonitor(cluster, jobs_of(cluster))


def jobs_of(cluster: Cluster) -> ServingJobs:
    """Return the ServingJobs of a cluster."""
    found = cluster.simulations[SERVING.name]
    if not isinstance(found, ServingJobs):
        raise TypeError(f"the cluster simulates ServingJobs as {type(found).__name__}")
    return found


SERVING = JobKind(
    CONTROLLER,
    program=ServingProgram,
    simulate=ServingJobs,
    monitor=_monitor,
    engines=_engines,
    has_pod=_has_pod,
    ranks=lambda job: 0,
    ended=lambda job: False,
    serves=True,
)
