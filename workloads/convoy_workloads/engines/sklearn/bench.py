"""Measures sklearn: requests computed together against one request at a time, and against a server written by
hand. Sixteen clients send requests of one row, each as soon as its last response has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convoy_crds import terms
from convoy_workloads.bench.arms import Arm, Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.bench.serving.clients import Responses, is_whole, request, run_clients
from convoy_workloads.bench.serving.server import serving
from convoy_workloads.local.ports import free_port

CLIENTS = 16
PATH = "/v2/models/sklearn/infer"
PACKAGE = "convoy_workloads.engines.sklearn"


def measure(server: str, params: dict[str, Any], workload: dict[str, int]) -> dict[str, Any]:
    """Serve the workload once. Return the rate, the latency, and the digest of all labels.

    `server`: module of the server, in the engine's package. `workload`: number of requests, and number of
    trees of the model.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415 - only the arm's own process needs it

    port = free_port()
    digits = load_digits()
    requests = [
        request(port, _body(digits.data[number % len(digits.data)].tolist()), PATH)
        for number in range(workload["requests"])
    ]
    with tempfile.TemporaryDirectory(prefix="convoy-sklearn-") as folder:
        file = Path(folder) / "model.skops"
        _make_model(file, workload["trees"])
        command = [f"{PACKAGE}.{server}", str(file), str(port)]
        environment = {
            terms.ENV_PARAMS: json.dumps(params),
            terms.ENV_MODEL_PATH: str(file),
            terms.ENV_SERVING_HOST: "127.0.0.1",
            terms.ENV_SERVING_PORT: str(port),
            terms.ENV_ENDPOINT_LAG_SECONDS: "0",
        }
        with serving(command, port, environment):
            asyncio.run(run_clients(port, requests[:CLIENTS], CLIENTS, is_whole))
            found = asyncio.run(run_clients(port, requests, CLIENTS, is_whole))
    slowest = sorted(found.first_seconds)
    return {
        "requests_per_second": len(requests) / found.seconds,
        "p95_seconds": slowest[int(0.95 * len(slowest))],
        "labels": hashlib.sha256(json.dumps(_labels(found)).encode()).hexdigest(),
    }


def _make_model(file: Path, trees: int) -> None:
    """Train a classifier of handwritten digits and save it."""
    import skops.io  # noqa: PLC0415 - only the arm's own process needs it
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415

    model = RandomForestClassifier(trees, random_state=1)
    skops.io.dump(model.fit(*load_digits(return_X_y=True)), file)


def _body(row: list[float]) -> dict[str, Any]:
    return {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, len(row)], "data": row}]}


def _labels(found: Responses) -> list[Any]:
    """Return the label in each response, in the order of the requests."""
    bodies = [found.bodies[number].partition(b"\r\n\r\n")[2] for number in sorted(found.bodies)]
    return [json.loads(body)["outputs"][0]["data"] for body in bodies]


def _arm(name: str, server: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Arm:
    return function(name, measure, {"server": server, "params": params, "workload": options["workload"]})


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: requests together, one request at a time, a server by hand, and one at a time again as
    the control.
    """
    alone = {"batching": False}
    return Arms(
        _arm("sklearn with requests together", "engine", {}, options),
        (
            _arm("one request at a time", "engine", alone, options),
            _arm("a Starlette server by hand", "plain_server", {}, options),
        ),
        _arm("one request at a time again", "engine", alone, options),
    )


BENCH = Bench(
    sizes={
        "small": {"workload": {"requests": 64, "trees": 10}},
        "full": {"workload": {"requests": 2000, "trees": 100}},
    },
    arms=arms,
    measures=lambda options: [
        Measure(
            name=f"requests per second, {CLIENTS} clients, a forest of {options['workload']['trees']} trees",
            unit="1/s",
            value_of=lambda trial: float(trial.result["requests_per_second"]),
            higher_is_better=True,
            target=3.0,
        ),
        Measure(
            name=f"95th percentile of the latency, {CLIENTS} clients",
            unit="s",
            value_of=lambda trial: float(trial.result["p95_seconds"]),
        ),
    ],
    equal=(Equality(key="labels", name="all labels"),),
)
