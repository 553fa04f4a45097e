"""A perturbation of one simulated run."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from convoy_crds.meta import Model
from convoy_crds.perturbations import PerturbationKind, perturbation_type


class Perturbation(Model):
    """A perturbation with its magnitude and its time in the run."""

    kind: PerturbationKind
    magnitude: float
    """Magnitude in the unit of the kind."""
    start: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """Seconds from the start of the run until the perturbation begins."""
    duration: Annotated[float, Field(gt=0, le=86_400)] | None = None
    """Length in seconds. If absent, the perturbation lasts until the run ends."""

    @model_validator(mode="after")
    def _is_allowed(self) -> Self:
        known = perturbation_type(self.kind)
        if not known.least <= self.magnitude <= known.most:
            raise ValueError(f"magnitude: {self.kind} must be from {known.least:g} to {known.most:g}")
        if known.whole and self.magnitude != int(self.magnitude):
            raise ValueError(f"magnitude: {self.kind} must be a whole number")
        return self

    @property
    def end(self) -> float:
        """Return the seconds from the start of the run to the end of the perturbation."""
        return math.inf if self.duration is None else self.start + self.duration

    def active(self, second: float) -> bool:
        """Return True if the perturbation acts `second` seconds after the start of the run."""
        return self.start <= second < self.end


def magnitude_at(
    perturbation: Perturbation | None, kind: PerturbationKind, second: float, neutral: float
) -> float:
    """Return the magnitude of the perturbation if it has this kind and acts at this time; else `neutral`."""
    if perturbation is None or perturbation.kind is not kind or not perturbation.active(second):
        return neutral
    return perturbation.magnitude
