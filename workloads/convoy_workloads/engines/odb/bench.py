"""Measures an epoch of online batching against fixed batches and other ways to batch, on two ranks.

All arms train on the same documents, without checkpoints. rows.py has further arms, such as the published
package, for docs/bench/engines_training.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convoy_workloads.bench.arms import PYTHON, Arm, Arms
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.engines.odb import ENGINE

RANKS = 2
ONLINE, FIXED, BLIND = "odb", "fixed batches", "odb that sees no lengths"
FULL: dict[str, Any] = {
    "samples": 400,
    "mean_length": 125,
    "longest": 512,
    "token_budget": 2048,
    "layers": 1,
    "width": 64,
}


def arm(name: str, params: Mapping[str, Any], **options: Any) -> Arm:
    """Return an arm: a training by epoch.py under torchrun."""
    return program(name, {"params": dict(params), **options})


def program(name: str, options: Mapping[str, Any]) -> Arm:
    """Return an arm that runs epoch.py with these options."""
    launcher = [*PYTHON, "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "-m"]

    def command(result: Path) -> list[str]:
        return [*launcher, "convoy_workloads.engines.odb.epoch", str(result), json.dumps(dict(options))]

    return Arm(name, command)


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: online batching, the baselines, and online batching without lengths as the control."""
    kinds = {"length-grouped batches": "grouped", "offline oracle": "oracle"}
    return Arms(
        arm(ONLINE, options),
        (
            arm(FIXED, {**options, "batching": "fixed"}),
            *(arm(name, {**options, "batching": kind}) for name, kind in kinds.items()),
        ),
        arm(BLIND, {**options, "batching": "blind"}),
    )


def measures(options: Mapping[str, Any]) -> list[Measure]:
    """Return the measures: times of an epoch, and padding."""
    del options
    return [
        Measure(
            name="processor time of an epoch",
            unit="seconds",
            value_of=lambda trial: trial.result["processor_seconds"],
            target=1.5,
        ),
        Measure(name="wall time of an epoch", unit="seconds", value_of=lambda trial: trial.result["seconds"]),
        Measure(
            name="padding, ratio of all tokens", unit="ratio", value_of=lambda trial: trial.result["padding"]
        ),
    ]


BENCH = Bench(
    sizes={"small": {**ENGINE.small, "samples": 48}, "full": FULL},
    arms=arms,
    measures=measures,
    equal=(
        Equality(key="samples", name="samples of the epoch, by SHA-256 of their numbers"),
        Equality(key="unequal", name="ranks with another number of batches than the first"),
    ),
    rounds=5,
)
