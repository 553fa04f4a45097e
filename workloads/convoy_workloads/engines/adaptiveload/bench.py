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
FULL: dict[str, Any] = {
    "samples": 420,
    "buckets": [128, 128, 128, 128, 512, 512, 2048],
    "memory_tokens": 6144,
    "layers": 1,
    "width": 64,
    "refit_steps": 0,
    "window": 128,
}
"""A size is as frequent as 1 over the square root of its tokens. The memory limit is three times that of the
equal-token batches: with equal limits, the compute limit could only make batches smaller.
"""
BASE: dict[str, Any] = {"rule": "equal_tokens", "dealing": "none", "memory_tokens": 2048}
"""The changes of the baseline."""


def program(name: str, options: Mapping[str, Any]) -> Arm:
    """Return an arm that runs rank.py with these options."""
    launcher = [*PYTHON, "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "-m"]
    module = "convoy_workloads.engines.adaptiveload.rank"
    return Arm(name, lambda result: [*launcher, module, str(result), json.dumps(dict(options))])


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: the method, equal-token batches, and these again as the negative control."""

    def arm(name: str, **changed: Any) -> Arm:
        return program(name, {"params": {**options, **changed}})

    base = {**BASE, "memory_tokens": max(options["buckets"])}
    return Arms(arm(DEALT), (arm(EQUAL, **base),), arm("equal-token batches again", **base))


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
