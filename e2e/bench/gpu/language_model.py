"""Measures the engine lm on a GPU. All servers run at once; only one has requests at a time."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from convoy_crds import terms
from convoy_workloads.bench.arms import Arm
from convoy_workloads.bench.comparison import compare
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.serving.server import serving
from convoy_workloads.bench.trial import Trial
from convoy_workloads.engines.lm.bench import BATCHED, BENCH, MODEL, send
from convoy_workloads.local.ports import free_port

ROUNDS = 7


def add(figures: Figures, small: bool) -> None:
    """Add the rows."""
    size = "small" if small else "full"
    options = BENCH.sizes["small" if small else "full"]
    ports: dict[str, int] = {}
    with contextlib.ExitStack() as stack:

        def port_of(params: dict[str, Any], **environment: str) -> int:
            key = json.dumps([params, environment], sort_keys=True)
            if key not in ports:
                ports[key] = free_port()
                stack.enter_context(_server(ports[key], params, environment))
            return ports[key]

        def run_once(arm: Arm) -> Trial:
            given = json.loads(arm.command(Path())[-1])
            return Trial(0.0, 0.0, send(port_of(given["params"]), given["workload"])[0])

        figures.merge(compare(BENCH, "small" if small else "full", 1 if small else ROUNDS, run_once))
        params = {**BATCHED, **options["params"]}
        ours = send(port_of(params), options["workload"])[1]
        theirs, answers = send(port_of(params, CUDA_VISIBLE_DEVICES=""), options["workload"])
        different = sum(one != other for one, other in zip(ours, answers, strict=True))
        print(f"{size}: first difference {_first_difference(ours, answers)}", flush=True)
        name = f"lm: of {len(ours)} sampled texts, those that differ from the CPU's"
        figures.add(Metric(name, "count"), float(different))
        name = "lm: tokens per second of the same server on one core of the CPU"
        figures.add(Metric(name, "1/s", higher_is_better=True), theirs["tokens_per_second"])


@contextlib.contextmanager
def _server(port: int, params: dict[str, Any], environment: dict[str, str]) -> Any:
    given = {
        terms.ENV_PARAMS: json.dumps({**MODEL, **params}),
        terms.ENV_SERVING_HOST: "127.0.0.1",
        terms.ENV_SERVING_PORT: str(port),
        terms.ENV_ENDPOINT_LAG_SECONDS: "0",
    }
    with serving(["convoy_workloads.engines.lm.engine"], port, {**given, **environment}):
        yield


def _first_difference(ours: list[str], theirs: list[str]) -> list[tuple[int, int]]:
    """Return the number of each text that differs, with the place of its first different character."""
    return [
        (
            number,
            next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), -1),
        )
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True))
        if one != other
    ]
