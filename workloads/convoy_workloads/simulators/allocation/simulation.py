"""One run of the simulator allocation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.allocation.cluster import Cluster, Nodes
from convoy_workloads.simulators.allocation.params import Params
from convoy_workloads.simulators.allocation.telemetry import Telemetry
from convoy_workloads.simulators.allocation.view import Policy
from convoy_workloads.simulators.allocation.workload import Amount, Job, history, jobs
from convoy_workloads.simulators.cost_curve import CostCurve
from convoy_workloads.simulators.perturbation import Perturbation, magnitude_at
from convoy_workloads.simulators.simulator import Outcome


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the cluster to the end of all jobs."""

    jobs: list[Job]
    cluster: Cluster
    telemetry: Telemetry

    @property
    def costs(self) -> CostCurve:
        """Return the slowdown that jobs gather, from any time on: each second counts by the job's length."""
        pairs = zip(self.jobs, self.cluster.ends, strict=True)
        return CostCurve((job.arrival, end, 1 / job.seconds) for job, end in pairs)


def simulate(params: Params, seed: int, perturbation: Perturbation | None = None) -> Outcome:
    """Run all jobs of the seed's workload to their end, and return the figures."""
    run = run_policy(params, params.policy.create(seed), seed, perturbation)
    achieved = None if perturbation is None else _achieved(perturbation, run)
    return Outcome(_figures(run), achieved=achieved)


def run_policy(params: Params, policy: Policy, seed: int, perturbation: Perturbation | None = None) -> Run:
    """Run all jobs with a policy of the caller, such as one that records its decisions."""
    shift = PerturbationKind.WORKLOAD_SHIFT
    offered = jobs(params.workload, seed, lambda at: magnitude_at(perturbation, shift, at, 1.0))
    telemetry = Telemetry(perturbation, seed)
    for job in history(params.workload, seed):
        telemetry.record(job.arrival, job.kind, job.used)
    nodes = Nodes(params.nodes, Amount(params.cores, params.memory), params.visible)
    cluster = Cluster(offered, nodes, policy, telemetry, perturbation)
    cluster.run()
    return Run(offered, cluster, telemetry)


def _figures(run: Run) -> dict[str, float]:
    slowdowns = [
        (end - job.arrival) / job.seconds for end, job in zip(run.cluster.ends, run.jobs, strict=True)
    ]
    return {
        "meanSlowdown": math.fsum(slowdowns) / len(slowdowns),
        "p95Slowdown": sorted(slowdowns)[math.ceil(0.95 * len(slowdowns)) - 1],
        "slackPercent": 100 * (1 - run.cluster.used_seconds / run.cluster.reserved_seconds),
        "kills": float(run.cluster.kills),
        "offered": math.fsum(job.seconds for job in run.jobs),
    }


def _achieved(perturbation: Perturbation, run: Run) -> float | None:
    if perturbation.kind is PerturbationKind.WORKLOAD_SHIFT:
        return perturbation.magnitude if perturbation.start <= run.jobs[-1].arrival else None
    if perturbation.kind is PerturbationKind.TENANT:
        return perturbation.magnitude if perturbation.start <= max(run.cluster.ends) else None
    return run.telemetry.achieved
