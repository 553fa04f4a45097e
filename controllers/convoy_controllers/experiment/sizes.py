"""The size of the parameters that the analysis of an Experiment gets. They travel in one variable of a pod's
environment.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from typing import Any

from convoy_controllers.experiment.blocks import MAX_MESSAGE_BYTES
from convoy_controllers.experiment.outcomes import measured
from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_data import ExperimentData, PackedBlock, compressed
from convoy_crds.experiment_schedule import schedule
from convoy_crds.params import params_size

_TIME = 1_900_000_000


def analysis_size(spec: ExperimentSpec, plan: Mapping[str, Any]) -> int:
    """Return the bytes of the analysis' parameters if every block ends, no number can be shortened, and the
    messages of failed runs take all their space.
    """
    params = {"action": "analyse", "plan": plan, "data": compressed(_largest_data(spec))}
    return params_size(params)


def _largest_data(spec: ExperimentSpec) -> ExperimentData:
    """Return data that compress as badly as any."""
    draw = random.Random(0)  # noqa: S311 - must be repeatable
    arms, outcomes = 1 if spec.sweep is not None else len(spec.arms), len(spec.outcomes)
    places = [(arm, outcome) for arm in range(arms) for outcome in range(outcomes)]
    letters = string.ascii_letters + string.digits
    failures = []
    for number in range(MAX_MESSAGE_BYTES // 256):
        failures.append((number % arms, "JobFailed", "".join(draw.choices(letters, k=256))))
    blocks = [
        PackedBlock(
            id=one.id,
            seed=one.seed,
            values=[[_number(draw) for _ in range(outcomes)] for _ in range(arms)],
            censored=[place for place in places if draw.random() < 0.5],
            achieved=[(arm, measured(_number(draw)) or 0.0) for arm in range(arms)]
            if spec.perturbations
            else None,
            start=_TIME + draw.randrange(10**6),
            end=_TIME + draw.randrange(10**6),
        )
        for one in schedule(spec)
    ]
    blocks[0] = blocks[0].model_copy(update={"failures": failures})
    return ExperimentData(blocks=blocks)


def _number(draw: random.Random) -> float:
    return draw.uniform(-1, 1) * 10.0 ** draw.randrange(-20, 20)
