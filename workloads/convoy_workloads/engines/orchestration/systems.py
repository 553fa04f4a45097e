"""The three systems of the study: simulator, outcomes, and the grid of perturbations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_workloads.engines.orchestration.arms import ARMS, BROKEN, SAME, StudyArm
from convoy_workloads.engines.orchestration.params import KindName, Params, SystemName


@dataclass(frozen=True, kw_only=True)
class System:
    """A simulated system that controllers of the study steer."""

    name: SystemName
    """Name of the simulator."""
    primary: str
    """Figure that the predictions are about. Lower is better."""
    secondary: str
    """Second figure of the experiments. Lower is better."""
    tuned: str
    """Figure that training and tuning improve: the primary or the secondary one."""
    operational: tuple[str, ...]
    """Figures that the report shows side by side, so that no single figure hides the others."""
    magnitudes: Mapping[KindName, tuple[float, ...]]
    published_margin: float | None = None
    """Relative gain over tuned heuristics that the abstract of the system's publication states."""

    @property
    def outcomes(self) -> tuple[str, str]:
        """Return the outcomes of the experiments. The first one shows whether the positive control is worse,
        so it is the one that the training improves.
        """
        other = self.secondary if self.tuned == self.primary else self.primary
        return self.tuned, other

    @property
    def arms(self) -> tuple[StudyArm, ...]:
        """Return the controllers, without the controls."""
        return ARMS[self.name]


SYSTEMS: tuple[System, ...] = (
    System(
        name="autoscaling",
        primary="latePercent",
        # Late requests alone would ask for all replicas.
        secondary="weightedCost",
        tuned="weightedCost",
        operational=("latePercent", "p99Seconds", "podHours", "changes"),
        magnitudes={
            "ObservationLag": (30.0, 60.0, 120.0, 300.0),
            "TelemetryNoise": (0.2, 0.5, 1.0),
            "WorkloadShift": (1.5, 2.0, 0.7),
            "Tenant": (0.2, 0.4),
        },
    ),
    System(
        name="dag-scheduling",
        primary="meanJobSeconds",
        secondary="p95JobSeconds",
        tuned="meanJobSeconds",
        operational=("meanJobSeconds", "p95JobSeconds", "meanSlowdown", "moves"),
        magnitudes={
            "ObservationLag": (10.0, 30.0, 60.0, 120.0),
            "TelemetryNoise": (0.5, 1.0, 2.0),
            "WorkloadShift": (1.3, 1.6, 0.7),
            "Tenant": (0.2, 0.4),
        },
        published_margin=0.21,
    ),
    System(
        name="allocation",
        primary="meanSlowdown",
        secondary="p95Slowdown",
        tuned="meanSlowdown",
        operational=("meanSlowdown", "p95Slowdown", "slackPercent", "kills"),
        magnitudes={
            # Jobs arrive for about 400 s. A lag that is longer than a run would hide all measurements.
            "ObservationLag": (30.0, 60.0, 120.0, 300.0),
            "TelemetryNoise": (0.2, 0.5, 1.0),
            "WorkloadShift": (1.3, 1.6, 0.7),
            "Tenant": (0.15, 0.3),
        },
    ),
)


def chosen(params: Params) -> tuple[System, ...]:
    """Return the systems of a study."""
    return tuple(one for one in SYSTEMS if one.name in params.systems)


def base_params(system: System, params: Params) -> dict[str, Any]:
    """Return the simulator's parameters that all arms of a system share."""
    match system.name:
        case "autoscaling":
            bursty = {"name": "bursty", "rate": 20, "burstFactor": 2.5, "burstsPerHour": 3}
            return {
                "seconds": params.seconds, "maxReplicas": 20, "lateWeight": 0.5, "workload": bursty,
            }  # fmt: skip
        case "dag-scheduling":
            return {"workload": {"jobs": params.jobs}}
        case "allocation":
            return {"workload": {"jobs": 3 * params.jobs}}


def arm_names(system: System) -> list[str]:
    """Return the names of all arms of a system, the controls last."""
    return [*(one.name for one in system.arms), SAME, BROKEN]
