"""One run of the simulator dag-scheduling."""

from __future__ import annotations

import math
from dataclasses import dataclass

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.cost_curve import CostCurve
from convoy_workloads.simulators.dag_scheduling.cluster import Cluster, Executors
from convoy_workloads.simulators.dag_scheduling.params import Params
from convoy_workloads.simulators.dag_scheduling.telemetry import Telemetry
from convoy_workloads.simulators.dag_scheduling.view import Policy
from convoy_workloads.simulators.dag_scheduling.workload import Job, jobs
from convoy_workloads.simulators.perturbation import Perturbation, magnitude_at
from convoy_workloads.simulators.simulator import Outcome


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the cluster to the end of all jobs."""

    jobs: list[Job]
    cluster: Cluster
    telemetry: Telemetry
    seconds: float
    """Virtual seconds at which the last job ended."""

    @property
    def costs(self) -> CostCurve:
        """Return the seconds that jobs spend in the cluster, from any time on."""
        pairs = zip(self.jobs, self.cluster.ends, strict=True)
        return CostCurve((job.arrival, end, 1.0) for job, end in pairs)


def simulate(params: Params, seed: int, perturbation: Perturbation | None = None) -> Outcome:
    """Run all jobs of the seed's workload to their end, and return the figures."""
    policy = params.policy.create(params.executors, seed)
    run = run_policy(params, policy, seed, perturbation)
    achieved = None if perturbation is None else _achieved(perturbation, run, params)
    return Outcome(_figures(run, params), achieved=achieved)


def run_policy(params: Params, policy: Policy, seed: int, perturbation: Perturbation | None = None) -> Run:
    """Run all jobs with a policy of the caller, such as one that records its decisions."""
    shift = PerturbationKind.WORKLOAD_SHIFT
    offered = jobs(params.workload, seed, lambda at: magnitude_at(perturbation, shift, at, 1.0))
    telemetry = Telemetry(perturbation, seed)
    executors = Executors(params.executors, params.move_seconds, params.slowdown)
    cluster = Cluster(offered, executors, policy, telemetry, perturbation)
    return Run(offered, cluster, telemetry, cluster.run())


def _figures(run: Run, params: Params) -> dict[str, float]:
    times = [end - job.arrival for end, job in zip(run.cluster.ends, run.jobs, strict=True)]
    alone = [_seconds_alone(job, params.executors) for job in run.jobs]
    return {
        "meanJobSeconds": math.fsum(times) / len(times),
        "p95JobSeconds": sorted(times)[math.ceil(0.95 * len(times)) - 1],
        "meanSlowdown": math.fsum(a / b for a, b in zip(times, alone, strict=True)) / len(times),
        "moves": float(run.cluster.moves),
        "makespanSeconds": run.seconds,
        "offered": math.fsum(job.work for job in run.jobs),
    }


def _seconds_alone(job: Job, executors: int) -> float:
    """Return a lower bound of the seconds that the job would take if it had the cluster for itself."""
    return max(job.work / executors, *(one.path_seconds for one in job.stages))


def _achieved(perturbation: Perturbation, run: Run, params: Params) -> float | None:
    if perturbation.kind is PerturbationKind.WORKLOAD_SHIFT:
        return perturbation.magnitude if perturbation.start <= run.jobs[-1].arrival else None
    if perturbation.kind is PerturbationKind.TENANT:
        active = min(run.seconds, perturbation.end) - perturbation.start
        return run.cluster.tenant_seconds / (active * params.executors) if active > 0 else None
    return run.telemetry.achieved
