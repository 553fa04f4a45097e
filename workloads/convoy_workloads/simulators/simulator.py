"""The description of a simulator, its result, and the error for input that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_crds.meta import Model
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.perturbation import Perturbation


class InvalidSimulation(ValueError):
    """Raised for a simulation that cannot run. The message names the field."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one simulated run."""

    figures: Mapping[str, float]
    """Value of each figure by name. All are finite."""
    censored: tuple[str, ...] = ()
    """Names of figures whose value is only a limit, because the run did not reach their event."""
    achieved: float | None = None
    """Measured magnitude of the perturbation; None without one, or if it had nothing to act on."""


@dataclass(frozen=True, slots=True)
class Simulator:
    """A simulator that the arms of an Experiment can name."""

    name: str
    params: type[Model]
    figures: Mapping[str, str]
    """Unit of each figure by name; empty for a plain count."""
    perturbations: frozenset[PerturbationKind]
    """Kinds of perturbations that the simulator can inject."""
    run: Callable[[Any, int, Perturbation | None], Outcome]
    """(params, seed, perturbation) -> the result. `params` is an instance of the class `params`."""
