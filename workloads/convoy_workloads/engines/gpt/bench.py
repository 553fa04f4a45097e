"""Measures the cost of Convoy for a training loop: gpt as a local job is compared with plain DDP under
torchrun.

Both programs train the same model on the same batches with two ranks. Convoy adds its launcher, a report of
every step, the ranks' agreement on each step, telemetry and hooks. The timed steps include neither a
checkpoint nor a measurement of the held-out loss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from convoy_workloads.bench.arms import Arms, local_job, torchrun
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.engines.gpt import ENGINE

RANKS = 2
UNTIMED = {"sample_bytes": 0, "held_out_every": 10_000_000, "held_out_batches": 1}


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: gpt, plain DDP, and plain DDP again as the negative control."""
    params = {**options, **UNTIMED}
    plain = ("convoy_workloads.engines.gpt.ddp", [json.dumps(params)], RANKS)
    return Arms(
        local_job("gpt under Convoy", ENGINE, params, RANKS),
        (torchrun("plain DDP under torchrun", *plain),),
        torchrun("plain DDP again", *plain),
    )


def measures(options: Mapping[str, Any]) -> list[Measure]:
    """Return the measures: tokens per second, processor time of a step, and processor time of the whole
    run.
    """
    tokens = options["batch"] * options["context"] * RANKS
    return [
        Measure(
            name="tokens per second",
            unit="tokens/s",
            value_of=lambda trial: tokens / trial.result["seconds_per_step"],
            higher_is_better=True,
            target=0.95,
        ),
        Measure(
            name="processor time of a step, rank 0",
            unit="seconds",
            value_of=lambda trial: trial.result["processor_seconds_per_step"],
        ),
        Measure(
            name="processor time of the whole run, all processes",
            unit="seconds",
            value_of=lambda trial: trial.processor_seconds,
        ),
    ]


BENCH = Bench(
    sizes={
        "small": {**ENGINE.small, "steps": 10},
        "full": {"steps": 200, "batch": 8, "context": 64, "layers": 2, "width": 128, "heads": 4},
    },
    arms=arms,
    measures=measures,
    equal=(
        Equality(key="loss", name="loss of the last step, all runs"),
        Equality(key="parameters", name="runs whose parameters differ from the first, by SHA-256"),
    ),
    rounds=7,
)
