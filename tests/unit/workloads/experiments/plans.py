"""Plans and blocks of made-up Experiments."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_hash import plan_document
from convoy_crds.experiment_schedule import Block, schedule

PREDICTION = {
    "name": "faster",
    "outcome": "seconds",
    "candidate": "ours",
    "comparator": "theirs",
    "direction": "Better",
}
Values = Callable[[Block, str, str], float | None]
"""Function from block, arm and outcome to the observed value; None if the run failed."""


def arm(name: str, role: str, **more: Any) -> dict[str, Any]:
    if role == "NegativeControl":
        return {"name": name, "type": "Simulation", "role": role, **more}
    return {"name": name, "type": "Simulation", "role": role, "simulation": {"simulator": "recovery"}, **more}


def outcome(name: str, better: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "better": better, "source": {"metric": name}, "unit": "s", **more}


def plan(**changes: Any) -> dict[str, Any]:
    """Return the plan document of two arms and one prediction, with changed fields of the spec."""
    spec = {
        "arms": [arm("ours", "Candidate"), arm("theirs", "Comparator")],
        "outcomes": [outcome("seconds", "Lower")],
        "store": "s3",
        "blocks": 10,
        "predictions": [PREDICTION],
        "analysis": {"resamples": 1000},
        **changes,
    }
    return plan_document("toy", spec, [])


def blocks(document: Mapping[str, Any], values: Values) -> list[dict[str, Any]]:
    """Return the ended blocks of a plan as they stand in the status."""
    spec = ExperimentSpec.model_validate(document["spec"])
    return [_block(spec, one, values) for one in schedule(spec)]


def _block(spec: ExperimentSpec, block: Block, values: Values) -> dict[str, Any]:
    figures, failures = [], []
    for label in block.labels:
        found = {one.name: values(block, label, one.name) for one in spec.outcomes}
        if None in found.values():
            failures.append({"arm": label, "reason": "JobFailed"})
            continue
        figures += [{"arm": label, "outcome": name, "value": value} for name, value in found.items()]
    row = {
        "id": block.id,
        "repetition": block.repetition,
        "seed": block.seed,
        "arms": list(block.labels),
        "figures": figures,
        "failures": failures,
    }
    if block.cell.magnitude is not None:
        row |= {"perturbation": block.cell.perturbation, "magnitude": block.cell.magnitude}
    return row


def noise(block: Block, *key: object, spread: float = 1.0) -> float:
    """Return a normal random number that follows from the block's seed and the key."""
    return random.Random(f"{block.seed}/{key}").gauss(0, spread)


def shifted(by: float, spread: float = 1.0) -> Values:
    """Return values in which `ours` is better than every other arm by `by` seconds, with noise."""
    return lambda block, label, name: (
        10 + noise(block, "block") + noise(block, label, name, spread=spread) - (by if label == "ours" else 0)
    )
