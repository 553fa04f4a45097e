"""The registry of perturbations: faults and disturbances of a known magnitude.

Tests, benches and Experiments inject the same perturbations. Each one has a unit, the range of magnitudes
that is allowed, and the backends that can inject it. The backend measures the magnitude that it achieved.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Backend(StrEnum):
    """A part of Convoy that can inject a perturbation."""

    SIMULATION = "Simulation"
    """A simulator of the Engine `experiment-simulation`."""
    AGENT = "Agent"
    """The node agent, with the chart's value `faultInjection.enabled`, on nodes labelled for it."""
    HARNESS = "Harness"
    """The local cluster of tests and benches."""
    LOAD = "Load"
    """The Engine `load`, which sends the requests of a ServingJob's run."""


class PerturbationKind(StrEnum):
    """Kind of a perturbation."""

    OBSERVATION_LAG = "ObservationLag"
    """A controller sees its metrics late. Magnitude: seconds."""
    TELEMETRY_NOISE = "TelemetryNoise"
    """Random error of each metric. Magnitude: standard deviation as a fraction of the value."""
    TELEMETRY_LOSS = "TelemetryLoss"
    """Metrics that are lost. Magnitude: fraction of the samples."""
    WORKLOAD_SHIFT = "WorkloadShift"
    """Load that differs from the load of the tuning. Magnitude: factor of the rate."""
    TENANT = "Tenant"
    """A tenant outside the controller's influence uses capacity. Magnitude: fraction of the capacity."""
    BOOT_DELAY = "BootDelay"
    """A new replica or worker is ready later. Magnitude: seconds."""
    SLOW_NODE = "SlowNode"
    """A node computes more slowly. Magnitude: factor of the time."""
    SLOW_RANK = "SlowRank"
    """A rank computes more slowly. Magnitude: factor of the time."""
    KILL_RANK = "KillRank"
    """SIGKILL to a rank. Magnitude: number of kills in the run."""
    KILL_POD = "KillPod"
    """Deletion of a pod. Magnitude: number of deletions in the run."""
    NODE_LOSS = "NodeLoss"
    """A node disappears. Magnitude: number of nodes. The node agent never injects it."""
    SPOT_TRACE = "SpotTrace"
    """Spot nodes come and go, whole zones at once. Magnitude: losses per node-hour."""
    LINK_LIMIT = "LinkLimit"
    """Limited rate of a pod's network. Magnitude: megabits per second."""
    FULL_DISK = "FullDisk"
    """A full volume of a pod. Magnitude: fraction of the volume's bytes that are used."""


@dataclass(frozen=True, slots=True)
class PerturbationType:
    """The facts about one kind of perturbation."""

    kind: PerturbationKind
    unit: str
    """Unit of the magnitude, such as `s` or `ratio`."""
    least: float
    """Smallest magnitude that is allowed."""
    most: float
    """Largest magnitude that is allowed."""
    neutral: float | None
    """Magnitude that changes nothing; None if the kind has none."""
    backends: frozenset[Backend]
    measured: str
    """The measurement of the achieved magnitude on real pods; empty if only simulators and loads inject the
    kind, because they achieve what they are asked.
    """
    whole: bool = False
    """True if the magnitude is a whole number."""

    def text(self, magnitude: float) -> str:
        """Return a magnitude with its unit, such as `60 s`, `1 kill` or `factor 2`."""
        if self.unit in ("factor", "ratio"):
            return f"{self.unit} {magnitude:g}"
        unit = self.unit.removesuffix("s") if self.whole and magnitude == 1 else self.unit
        return f"{magnitude:g} {unit}"


_SIMULATED = frozenset({Backend.SIMULATION})
_EVERYWHERE = frozenset({Backend.SIMULATION, Backend.AGENT, Backend.HARNESS})
_ON_PODS = frozenset({Backend.AGENT, Backend.HARNESS})
_CPU_RATIO = "processor time per second before the fault / during the fault"

PERTURBATIONS: tuple[PerturbationType, ...] = (
    PerturbationType(PerturbationKind.OBSERVATION_LAG, "s", 0, 3600, 0, _SIMULATED, ""),
    PerturbationType(PerturbationKind.TELEMETRY_NOISE, "ratio", 0, 10, 0, _SIMULATED, ""),
    PerturbationType(PerturbationKind.TELEMETRY_LOSS, "ratio", 0, 1, 0, _SIMULATED, ""),
    PerturbationType(
        PerturbationKind.WORKLOAD_SHIFT, "factor", 0.01, 100, 1, _SIMULATED | {Backend.LOAD}, ""
    ),
    PerturbationType(
        PerturbationKind.TENANT,
        "ratio",
        0,
        0.95,
        0,
        _EVERYWHERE,
        "processor time of the tenant / (processors of the container x seconds)",
    ),
    PerturbationType(PerturbationKind.BOOT_DELAY, "s", 0, 3600, 0, _SIMULATED, ""),
    PerturbationType(PerturbationKind.SLOW_NODE, "factor", 1, 100, 1, _EVERYWHERE, _CPU_RATIO),
    PerturbationType(PerturbationKind.SLOW_RANK, "factor", 1, 100, 1, _EVERYWHERE, _CPU_RATIO),
    PerturbationType(
        PerturbationKind.KILL_RANK, "kills", 0, 100, 0, _EVERYWHERE, "number of kills", whole=True
    ),
    PerturbationType(
        PerturbationKind.KILL_POD, "deletions", 0, 100, 0, _EVERYWHERE, "number of deletions", whole=True
    ),
    PerturbationType(
        PerturbationKind.NODE_LOSS,
        "nodes",
        0,
        100,
        0,
        frozenset({Backend.SIMULATION, Backend.HARNESS}),
        "number of nodes that were lost",
        whole=True,
    ),
    PerturbationType(
        PerturbationKind.SPOT_TRACE,
        "losses per node-hour",
        0,
        60,
        0,
        frozenset({Backend.SIMULATION, Backend.HARNESS}),
        "losses / hours for which the nodes were there",
    ),
    PerturbationType(
        PerturbationKind.LINK_LIMIT,
        "Mbit/s",
        0.1,
        400_000,
        None,
        _ON_PODS,
        "sent bytes per second while packets waited, by the queue's counters; unknown if none waited",
    ),
    PerturbationType(
        PerturbationKind.FULL_DISK, "ratio", 0, 1, 0, _ON_PODS, "used bytes / size of the volume"
    ),
)


def perturbation_type(kind: PerturbationKind) -> PerturbationType:
    """Return the facts about a kind of perturbation."""
    return next(one for one in PERTURBATIONS if one.kind is kind)
