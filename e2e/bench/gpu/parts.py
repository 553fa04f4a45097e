"""List of the parts of the bench."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part of the bench."""

    module: str
    """Module whose function `add` adds the figures."""
    seconds: float
    """Time limit in seconds."""


PARTS = {
    "probes": Part("e2e.bench.gpu.probes", 300.0),
    "training": Part("e2e.bench.gpu.training", 300.0),
    "saving": Part("e2e.bench.gpu.saving", 240.0),
    "lm": Part("e2e.bench.gpu.language_model", 400.0),
    "fmplex": Part("e2e.bench.gpu.multiplexing", 600.0),
}
