"""The loop of the simulator autoscaling: arrivals, service, measurements, and a decision every 15 seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from convoy_controllers.autoscale.spec import SYNC_SECONDS
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.autoscaling.params import Params
from convoy_workloads.simulators.autoscaling.policies.policy import ReplicaPolicy, ServiceFacts
from convoy_workloads.simulators.autoscaling.policies.registry import make
from convoy_workloads.simulators.autoscaling.replicas import Replicas
from convoy_workloads.simulators.autoscaling.service import Service, late, quantile
from convoy_workloads.simulators.autoscaling.telemetry import Telemetry
from convoy_workloads.simulators.autoscaling.workload import arrivals, rates
from convoy_workloads.simulators.perturbation import Perturbation, magnitude_at
from convoy_workloads.simulators.simulator import Outcome

_SYNC = int(SYNC_SECONDS)
_DIGITS = 6
"""Digits of the figures after the decimal point."""


@dataclass(slots=True)
class Run:
    """The state of one run."""

    params: Params
    perturbation: Perturbation | None
    requests: list[int]
    """Requests that arrive in each second."""
    policy: ReplicaPolicy
    telemetry: Telemetry
    replicas: Replicas
    service: Service
    wanted: int
    """Number of replicas that the policy asked for last."""
    changes: int = 0
    pinned: int = 0
    """Number of decisions for the smallest or largest number of replicas."""
    decisions: int = 0

    def tick(self, second: int, *, decides: bool = True) -> None:
        """Simulate one second. A decision takes effect at the start of the second."""
        if decides and second % _SYNC == 0:
            self._decide(second)
        arrived = self.requests[second] if second < len(self.requests) else 0
        ready = self.replicas.ready(second)
        share = 1.0 - self._magnitude(PerturbationKind.TENANT, second)
        served = self.service.tick(second, arrived, ready, share)
        # The requests that a replica serves have its core, or the part of it that no tenant uses.
        cores = served * self.params.service_seconds / ready if ready else 0.0
        in_flight = (self.service.waiting / ready + cores / share) if ready else 0.0
        self.telemetry.record(arrived, self.service.waiting, cores, in_flight)

    def _decide(self, second: int) -> None:
        view = self.telemetry.view(second, self.replicas.present, self.policy.metrics)
        wanted = self.policy.decide(view)
        self.decisions += 1
        self.changes += wanted != self.wanted
        self.pinned += wanted in (self.params.min_replicas, self.params.max_replicas)
        self.wanted = wanted
        extra = self._magnitude(PerturbationKind.BOOT_DELAY, second)
        self.replicas.scale(wanted, second, self.params.boot_seconds, extra)

    def _magnitude(self, kind: PerturbationKind, second: int) -> float:
        return magnitude_at(self.perturbation, kind, second, 0.0)


def simulate(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    """Simulate the service once and return its figures."""
    undisturbed = rates(params.workload, params.seconds, seed)
    shifted = [
        rate * magnitude_at(perturbation, PerturbationKind.WORKLOAD_SHIFT, second, 1.0)
        for second, rate in enumerate(undisturbed)
    ]
    requests = arrivals(shifted, seed)
    policy = make(params.policy, service_facts(params, seed), requests)
    run = _start(params, seed, perturbation, requests, policy)
    for second in range(params.seconds):
        run.tick(second)
    pod_hours = run.replicas.pod_hours(params.seconds)
    # The requests that still wait at the end have a latency too, so they are served or given up.
    for second in range(params.seconds, params.seconds + params.timeout_seconds + 1):
        if run.service.empty:
            break
        run.tick(second, decides=False)
    return _outcome(run, pod_hours, undisturbed)


def run_policy(params: Params, policy: ReplicaPolicy, seed: int) -> None:
    """Let a policy of the caller, such as one that learns, decide in one undisturbed run."""
    requests = arrivals(rates(params.workload, params.seconds, seed), seed)
    run = _start(params, seed, None, requests, policy)
    for second in range(params.seconds):
        run.tick(second)


def service_facts(params: Params, seed: int) -> ServiceFacts:
    """Return the facts that every policy may know."""
    return ServiceFacts(
        params.min_replicas, params.max_replicas, params.service_seconds, params.boot_seconds, seed
    )


def _start(
    params: Params, seed: int, perturbation: Perturbation | None, requests: list[int], policy: ReplicaPolicy
) -> Run:
    replicas = Replicas()
    replicas.scale(params.initial_replicas, 0, 0.0)
    telemetry = Telemetry(seed, params.metric_lag_seconds, params.metric_window_seconds, perturbation)
    service = Service(params.service_seconds, params.timeout_seconds)
    return Run(params, perturbation, requests, policy, telemetry, replicas, service, params.initial_replicas)


def _outcome(run: Run, pod_hours: float, undisturbed: list[float]) -> Outcome:
    offered = sum(run.requests)
    slow = quantile(run.service, 0.99)
    late_percent = 100 * late(run.service, run.params.deadline_seconds) / offered if offered else 0.0
    figures = {
        "latePercent": late_percent,
        "p99Seconds": float(run.params.timeout_seconds) if slow is None else slow,
        "podHours": pod_hours,
        "weightedCost": pod_hours + run.params.late_weight * late_percent,
        "changes": float(run.changes),
        "lost": run.service.lost,
        "pinnedPercent": 100 * run.pinned / run.decisions,
        "offered": float(offered),
    }
    rounded = {name: round(value, _DIGITS) for name, value in figures.items()}
    censored = ("p99Seconds",) if slow is None else ()
    return Outcome(rounded, censored, _achieved(run, undisturbed))


def _achieved(run: Run, undisturbed: list[float]) -> float | None:
    """Return the measured magnitude of the perturbation."""
    perturbation = run.perturbation
    if perturbation is None:
        return None
    match perturbation.kind:
        case PerturbationKind.WORKLOAD_SHIFT:
            acted = [second for second in range(len(undisturbed)) if perturbation.active(second)]
            expected = math.fsum(undisturbed[second] for second in acted)
            found = sum(run.requests[second] for second in acted) / expected if expected else None
        case PerturbationKind.TENANT:
            acts = perturbation.start < run.params.seconds
            found = perturbation.magnitude if acts else None
        case PerturbationKind.BOOT_DELAY:
            delays = run.replicas.delays
            found = math.fsum(delays) / len(delays) if delays else None
        case _:
            found = run.telemetry.achieved()
    return None if found is None else round(found, _DIGITS)
