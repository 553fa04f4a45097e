"""The learning-rate schedule of gpt."""

from __future__ import annotations

import math

from convoy_workloads.engines.gpt.params import Params


def learning_rate(step: int, params: Params) -> float:
    """Return the learning rate of a step. It rises linearly over `warmup` steps, then falls along a cosine
    to a tenth of the peak.
    """
    if step <= params.warmup:
        return params.learning_rate * step / params.warmup
    progress = (step - params.warmup) / max(1, params.steps - params.warmup)
    return params.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))
