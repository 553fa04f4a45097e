"""One run of the simulator: iterations until the target is reached or the time is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.engines.spotlight.iteration import IterationReport
from convoy_workloads.engines.spotlight.params import Cluster
from convoy_workloads.engines.spotlight.simulated.availability import trace_of
from convoy_workloads.engines.spotlight.simulated.run import Run
from convoy_workloads.engines.spotlight.simulated.workers import SimulatedWorkers
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome
from convoy_workloads.simulators.spotlight.params import Params
from convoy_workloads.spot.availability import Availability
from convoy_workloads.spot.ledger.node_seconds import Capacity
from convoy_workloads.spot.trace import SpotTrace

SECONDS_PER_HOUR = 3600.0
SEEDS = 2**31
_EVENTS = ("hoursToTarget", "costToTarget", "iterationsToTarget")


@dataclass(slots=True)
class _Curve:
    """The evaluations of a run, in the order of time."""

    hours: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)

    def reward_at(self, along: list[float], limit: float) -> float:
        """Return the last reward before a limit of the time or of the cost."""
        before = [reward for value, reward in zip(along, self.reward, strict=True) if value <= limit]
        return before[-1]


def outcome(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    """Return the figures of one run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # The sums of more threads have other bits.
    try:
        return _outcome(params, seed, perturbation)
    finally:
        torch.set_num_threads(threads)


def _outcome(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    cluster = perturbed(params.cluster, perturbation)
    seed %= SEEDS
    run = Run(params.model_copy(update={"seed": seed, "cluster": cluster}))
    trace = trace_of(cluster, seed)
    curve = _Curve([0.0], [0.0], [run.held_out()])
    reports: list[IterationReport] = []
    reached: dict[str, float] | None = None
    while len(reports) < params.steps and curve.hours[-1] < params.limit_hours:
        reports.append(run.iterate())
        if len(reports) % params.evaluate_every:
            continue
        curve.hours.append(run.workers.now() / SECONDS_PER_HOUR)
        curve.cost.append(run.workers.cost())
        curve.reward.append(run.held_out())
        if reached is None and np.mean(curve.reward[-params.smoothing :]) >= params.target:
            reached = _at_present(curve, reports)
        if reached and curve.hours[-1] >= params.check_hours and curve.cost[-1] >= params.check_spend:
            break
    offered = trace.window(0.0, params.limit_hours * SECONDS_PER_HOUR)
    figures = {
        **(reached or _at_present(curve, reports)),
        "tuningHours": reached["hoursToTarget"] if reached else _extrapolated(params, curve),
        "rewardAtTime": curve.reward_at(curve.hours, params.check_hours),
        "rewardAtSpend": curve.reward_at(curve.cost, params.check_spend),
        **_learning(reports),
        **_systems(run),
        "residual": _residual(run, params, trace),
        "offeredNodeHours": offered.figures().node_hours,
    }
    return Outcome(figures, () if reached else _EVENTS, _achieved(run, trace, cluster, perturbation))


def perturbed(cluster: Cluster, perturbation: Perturbation | None) -> Cluster:
    """Return the cluster under a perturbation, which must last for the whole run."""
    if perturbation is None:
        return cluster
    if perturbation.start or perturbation.duration is not None:
        raise InvalidSimulation(
            "perturbation: the simulator spotlight allows no start and no duration; remove them"
        )
    if perturbation.kind is PerturbationKind.BOOT_DELAY:
        return cluster.model_copy(update={"boot_seconds": cluster.boot_seconds + perturbation.magnitude})
    if not perturbation.magnitude:
        return cluster.model_copy(update={"trace": "steady"})
    hours = (cluster.zone_up_hours, cluster.zone_down_hours, cluster.node_up_hours, cluster.node_down_hours)
    other = Availability(*hours).with_losses(perturbation.magnitude)
    return cluster.model_copy(
        update={
            "trace": "model",
            "zone_up_hours": other.zone_up_hours,
            "zone_down_hours": other.zone_down_hours,
            "node_up_hours": other.node_up_hours,
            "node_down_hours": other.node_down_hours,
        }
    )


def _achieved(
    run: Run, trace: SpotTrace, cluster: Cluster, perturbation: Perturbation | None
) -> float | None:
    """Return the measured magnitude of the perturbation; None if no spot node could be disturbed."""
    if perturbation is None:
        return None
    if perturbation.kind is PerturbationKind.BOOT_DELAY:
        boots = run.workers.layout.boots if isinstance(run.workers, SimulatedWorkers) else []
        usual = cluster.boot_seconds - perturbation.magnitude
        return float(np.mean(boots)) - usual if boots else None
    seen = trace.window(0.0, run.workers.now())
    return seen.figures().losses_per_node_hour if seen.events else None


def _residual(run: Run, params: Params, trace: SpotTrace) -> float:
    """Return the larger one of the cost without a label, and the difference of the bill from the trace."""
    now = run.workers.now()
    wanted = trace.window(0.0, now).figures().node_hours * params.cluster.spot_price
    billed = run.workers.nodes.billed(now).get(Capacity.SPOT, 0.0)
    return max(abs(run.workers.nodes.residual(now)), abs(billed - wanted))


def _extrapolated(params: Params, curve: _Curve) -> float:
    """Return a time beyond the limit that grows with the reward that is missing. A tuning needs it to tell
    settings apart that do not reach the target.
    """
    reward = float(np.mean(curve.reward[-params.smoothing :]))
    return params.limit_hours * (2 - reward / max(params.target, 1e-9))


def _at_present(curve: _Curve, reports: list[IterationReport]) -> dict[str, float]:
    return {
        "hoursToTarget": curve.hours[-1],
        "costToTarget": curve.cost[-1],
        "iterationsToTarget": float(len(reports)),
    }


def _learning(reports: list[IterationReport]) -> Mapping[str, float]:
    correlations = [one.correlation for one in reports if one.correlation is not None]
    contrasts = [one.update.zero_contrast for one in reports if one.update is not None]
    return {
        "zeroContrastRatio": float(np.mean(contrasts)) if contrasts else 1.0,
        "exploredSeeds": float(np.mean([one.explored for one in reports])) if reports else 0.0,
        "rankCorrelation": float(np.mean(correlations)) if correlations else 0.0,
        "staleTrips": float(reports[-1].stale_trips) if reports else 0.0,
    }


def _systems(run: Run) -> Mapping[str, float]:
    figures, counts = run.figures(), run.ledger.counts()
    return {
        "idleSpotRatio": figures["idleRatio"],
        "lostSpotRatio": figures["lostRatio"],
        "regroupSpotRatio": figures["regroupRatio"],
        "resumedRequests": float(counts["resumed"]),
        "duplicates": float(counts["duplicates"]),
    }
