"""The schedule of the learning rate."""

from __future__ import annotations

import math

from convoy_workloads.engines.gpt.params import Params


def learning_rate(step: int, params: Params) -> float:
    """Return a step's rate: a linear rise over `warmup` steps, then a cosine to a tenth of the peak."""
    if step <= params.warmup:
        return params.learning_rate * step / params.warmup
    progress = (step - params.warmup) / max(1, params.steps - params.warmup)
    return params.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))
