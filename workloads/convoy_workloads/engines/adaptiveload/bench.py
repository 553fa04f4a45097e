"""Measures the time of an epoch with sized and sorted batches against equal-token batches, on two ranks.

The time is `busy`: the sum over the steps of the longest of the ranks' own times. Ranks that share processors
with other programs do not show by the clock for how long one waits for the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from convoy_workloads.bench.arms import PYTHON, Arm, Arms
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.engines.adaptiveload import ENGINE

RANKS = 2
DEALT, EQUAL = "adaptiveload", "equal-token batches"
BASE: dict[str, Any] = {"rule": "equal_tokens", "dealing": "none"}
FULL: dict[str, Any] = {
    "samples": 90,
    "buckets": [64, 256, 1024],
    "memory_tokens": 2048,
    "layers": 1,
    "width": 64,
    "refit_steps": 0,
    "window": 90,
}


def program(name: str, options: Mapping[str, Any]) -> Arm:
    """Return an arm that runs rank.py with these options."""
    launcher = [*PYTHON, "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "-m"]
    module = "convoy_workloads.engines.adaptiveload.rank"
    return Arm(name, lambda result: [*launcher, module, str(result), json.dumps(dict(options))])


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: the method, equal-token batches, and these again as the negative control."""

    def arm(name: str, **changed: Any) -> Arm:
        return program(name, {"params": {**options, **changed}})

    return Arms(arm(DEALT), (arm(EQUAL, **BASE),), arm("equal-token batches again", **BASE))


def measures(options: Mapping[str, Any]) -> list[Measure]:
    """Return the measures: the time of an epoch, and the imbalance."""
    del options
    return [
        Measure(
            name="time of an epoch on its slowest ranks",
            unit="seconds",
            value_of=lambda trial: trial.result["busy"],
        ),
        Measure(
            name="imbalance of two ranks", unit="ratio", value_of=lambda trial: trial.result["imbalance"]
        ),
    ]


BENCH = Bench(
    sizes={"small": {**ENGINE.small, "samples": 48}, "full": FULL},
    arms=arms,
    measures=measures,
    equal=(Equality(key="samples", name="samples of the epoch, by SHA-256 of their numbers"),),
    rounds=5,
    control_tolerance=0.15,
)
