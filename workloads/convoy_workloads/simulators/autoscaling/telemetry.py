"""The measurements of the simulated service, and the part of them that a policy may see.

A policy gets a `View`. It has the replicas of the present, which the API server knows, but measurements only
up to the lag. Nothing in it depends on what happened later.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from convoy_controllers.autoscale.samples import Pod, Sample
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.autoscaling.replicas import Replica
from convoy_workloads.simulators.perturbation import Perturbation, magnitude_at

CPU, IN_FLIGHT = "cpu", "inFlight"
"""Names of the metrics: cores that a replica uses, and requests that wait or are served, for each replica."""


@dataclass(frozen=True, slots=True)
class View:
    """The service as a policy sees it at one decision."""

    second: int
    """Seconds since the start of the run."""
    replicas: int
    """Number of replicas that the service shall have at present."""
    pods: tuple[Pod, ...]
    rate: float | None
    """Requests per second that arrived in the newest window; None if the measurement is missing."""
    waiting: float | None
    """Number of requests that waited on average in the newest window; None if the measurement is missing."""
    samples: Mapping[str, Mapping[str, Sample]]
    """Samples by name of the metric and of the pod. A missing sample is left out."""


@dataclass(slots=True)
class Telemetry:
    """The record of all ticks."""

    seed: int
    lag: float
    """Seconds between a measurement and its use, without a perturbation."""
    window: int
    perturbation: Perturbation | None = None
    arrived: list[float] = field(default_factory=lambda: [0.0])
    """Sums from the start to each second. The lists below are such sums too."""
    waiting: list[float] = field(default_factory=lambda: [0.0])
    cores: list[float] = field(default_factory=lambda: [0.0])
    """Cores used by one ready replica. All ready replicas are equally busy."""
    in_flight: list[float] = field(default_factory=lambda: [0.0])
    """Requests that wait or are served, for each ready replica."""
    ages: list[float] = field(default_factory=list)
    """Seconds beyond `lag` by which measurements were late, at each decision under a perturbation."""
    errors: list[float] = field(default_factory=list)
    """Relative errors that a perturbation has added to measurements."""
    drops: list[bool] = field(default_factory=list)
    """For each measurement under a perturbation with losses: True if it was lost."""

    def record(self, arrived: float, waiting: float, cores: float, in_flight: float) -> None:
        """Record the measurements of one tick."""
        for sums, value in (
            (self.arrived, arrived),
            (self.waiting, waiting),
            (self.cores, cores),
            (self.in_flight, in_flight),
        ):
            sums.append(sums[-1] + value)

    def view(self, second: int, present: list[Replica], metrics: tuple[str, ...]) -> View:
        """Return what a policy sees at a time. `metrics`: names of the metrics whose samples it needs."""
        extra = self.magnitude(PerturbationKind.OBSERVATION_LAG, second)
        end = second - round(self.lag + extra)
        if extra:
            self.ages.append(second - end - self.lag)
        distortion = _Distortion(self, second)
        rate, waiting = (self._mean(sums, end, distortion.factor()) for sums in (self.arrived, self.waiting))
        samples: dict[str, dict[str, Sample]] = {name: {} for name in metrics}
        for replica in present:
            factor = distortion.factor()
            if factor is not None and end - self.window >= replica.created:
                for name in metrics:
                    samples[name][replica.name] = self._sample(name, replica, end, factor)
        pods = tuple(one.pod(second) for one in present)
        return View(second, len(present), pods, rate, waiting, samples)

    def achieved(self) -> float | None:
        """Return the measured magnitude of a perturbation of the telemetry; None if it never acted."""
        if self.perturbation is None:
            return None
        match self.perturbation.kind:
            case PerturbationKind.OBSERVATION_LAG:
                return math.fsum(self.ages) / len(self.ages) if self.ages else None
            case PerturbationKind.TELEMETRY_NOISE:
                squares = math.fsum(one * one for one in self.errors)
                return (squares / len(self.errors)) ** 0.5 if self.errors else None
            case PerturbationKind.TELEMETRY_LOSS:
                return sum(self.drops) / len(self.drops) if self.drops else None
            case _:
                return None

    def _mean(self, sums: list[float], end: int, factor: float | None) -> float | None:
        """Return the mean over the window before `end`; None if there is no whole window, or no factor."""
        if factor is None or end < self.window:
            return None
        return factor * (sums[end] - sums[end - self.window]) / self.window

    def _sample(self, name: str, replica: Replica, end: int, factor: float) -> Sample:
        """Return the sample of a replica. Before it is ready, it uses nothing."""
        sums = self.cores if name == CPU else self.in_flight
        first = min(end, max(end - self.window, replica.ready_at))
        value = factor * (sums[end] - sums[first]) / self.window
        return Sample(round(1000 * value), end, self.window)

    def magnitude(self, kind: PerturbationKind, second: int) -> float:
        """Return the magnitude of the perturbation if it has this kind and acts now; otherwise 0."""
        return magnitude_at(self.perturbation, kind, second, 0.0)


class _Distortion:
    """The errors and losses of one decision's measurements. They follow from the seed, the time and the order
    of the measurements, so all arms of a block get the same ones.
    """

    def __init__(self, telemetry: Telemetry, second: int) -> None:
        self._telemetry = telemetry
        self._noise = telemetry.magnitude(PerturbationKind.TELEMETRY_NOISE, second)
        self._loss = telemetry.magnitude(PerturbationKind.TELEMETRY_LOSS, second)
        self._stream = (
            random.Random(f"{telemetry.seed}/telemetry/{second}")  # noqa: S311 - must be repeatable
            if self._noise or self._loss
            else None
        )

    def factor(self) -> float | None:
        """Return the factor of the next measurement; None if the measurement is lost."""
        if self._stream is None:
            return 1.0
        if self._loss:
            lost = self._stream.random() < self._loss
            self._telemetry.drops.append(lost)
            return None if lost else 1.0
        error = self._noise * self._stream.gauss(0.0, 1.0)
        self._telemetry.errors.append(error)
        return max(0.0, 1.0 + error)
