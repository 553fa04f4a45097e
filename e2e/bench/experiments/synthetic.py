"""Synthetic Experiments whose truth is known: plans, and blocks with drawn values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_hash import plan_document
from convoy_crds.experiment_plan import Direction
from convoy_crds.experiment_schedule import schedule

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Function from a generator and a shape to the values of runs."""


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return normally distributed values."""
    return random.standard_normal(shape)


def skewed(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return values with a long tail, as latencies have: a lognormal distribution."""
    return random.lognormal(0.0, 1.0, shape)


def tied(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return small counts, many of them equal."""
    return random.poisson(1.5, shape).astype(float)


DRAWS: Mapping[str, Draw] = {"normal": normal, "skewed": skewed, "ties": tied}


def plan(
    blocks: int,
    predictions: int = 1,
    direction: Direction = Direction.BETTER,
    margin: float = 0.0,
    controls: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the plan of two arms and of control arms, with one prediction for each outcome."""
    simulation = {"simulator": "recovery"}
    arms = [
        {"name": "ours", "type": "Simulation", "role": "Candidate", "simulation": simulation},
        {"name": "theirs", "type": "Simulation", "role": "Comparator", "simulation": simulation},
        *controls,
    ]
    outcomes = [
        {"name": f"o{number}", "better": "Higher", "source": {"metric": f"o{number}"}}
        for number in range(predictions)
    ]
    claims = [
        {
            "name": f"p{number}",
            "outcome": f"o{number}",
            "candidate": "ours",
            "comparator": "theirs",
            "direction": direction.value,
            "margin": margin,
        }
        for number in range(predictions)
    ]
    offered = {"name": "offered", "better": "Neither", "source": {"metric": "offered"}}
    spec = {
        "arms": arms,
        "outcomes": [*outcomes, offered],
        "predictions": claims,
        "blocks": blocks,
        "store": "none",
        "analysis": {"resamples": 2000},
    }
    return plan_document("synthetic", spec, [])


def blocks(document: Mapping[str, Any], values: np.ndarray) -> list[dict[str, Any]]:
    """Return the ended blocks of a plan. `values`: by repetition, arm and outcome, in the order of the plan;
    the outcome `offered` is last.
    """
    spec = ExperimentSpec.model_validate(document["spec"])
    arms = {one.name: number for number, one in enumerate(spec.arms)}
    return [
        {
            "id": block.id,
            "repetition": block.repetition,
            "seed": block.seed,
            "arms": list(block.arms),
            "figures": [
                {"arm": arm, "outcome": outcome.name, "value": float(values[block.repetition, arms[arm], at])}
                for arm in block.arms
                for at, outcome in enumerate(spec.outcomes)
            ],
        }
        for block in schedule(spec)
    ]
