"""Measures CA-SGD against plain SGD, which is the same program with s = 1, on two ranks over loopback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_workloads.bench.arms import Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.engines.casgd import timing
from convoy_workloads.engines.casgd.params import Params

FULL: dict[str, Any] = {
    "loss": "logistic",
    "rows": 4096,
    "columns": 2000,
    "batch": 16,
    "iterations": 512,
    "lr": 0.05,
    "latency": 0.0,
}
JOB_ITERATIONS = Params().steps * Params().iterations
"""Iterations of a job with the default parameters."""


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: CA-SGD with the chosen s, plain SGD, and plain SGD again as the negative control."""

    def arguments(s: int | str) -> dict[str, Any]:
        return {"workload": dict(options), "variant": {"s": s}}

    return Arms(
        function("casgd, s auto", timing.one_training, arguments("auto")),
        (function("SGD", timing.one_training, arguments(1)),),
        function("SGD again", timing.one_training, arguments(1)),
    )


def measures(options: Mapping[str, Any]) -> list[Measure]:
    """Return the measures: iterations per second with the time to choose s, and costs of an iteration."""
    iterations = options["iterations"]
    return [
        Measure(
            name="iterations per second, the choice of s included",
            unit="1/s",
            value_of=lambda trial: iterations / (trial.result["seconds"] + trial.result["choice_seconds"]),
            higher_is_better=True,
            target=4.0,
        ),
        Measure(
            name="processor time of an iteration, rank 0",
            unit="seconds",
            value_of=lambda trial: trial.result["processor_seconds"] / iterations,
        ),
        Measure(
            name="bytes of an iteration's messages",
            unit="bytes",
            value_of=lambda trial: trial.result["bytes"] / iterations,
        ),
    ]


BENCH = Bench(
    sizes={
        "small": {**FULL, "rows": 256, "columns": 64, "iterations": 64},
        "full": {**FULL, "iterations": JOB_ITERATIONS},
    },
    arms=arms,
    measures=measures,
    equal=(Equality(key="loss", name="loss after the training, relative to fp32", tolerance=1e-4),),
    rounds=7,
    control_tolerance=0.15,
)
