"""Measures lm: continuous batching against one request at a time, and prefix reuse against none.

Every arm runs the same server with the same model. Eight clients send requests, each as soon as its last
response has ended. The baseline has the number of rows that is best for one request at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import statistics
from collections.abc import Mapping
from typing import Any

from convoy_crds import terms
from convoy_workloads.bench.arms import Arm, Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.bench.serving.clients import request, run_clients, texts
from convoy_workloads.bench.serving.server import serving
from convoy_workloads.local.ports import free_port

CLIENTS = 8
MODEL = {"context": 256, "layers": 4, "width": 512, "heads": 8, "kv_tokens": 8192}
"""A model of 13 million parameters. Its 50 MB of weights do not fit into the caches of a core, as usual."""
BATCHED = {"rows": 16, "max_sequences": CLIENTS}
ALONE = {"rows": 1, "max_sequences": 1}
"""Parameters for one request at a time. Of 1, 2, 4 and 16 rows, 1 gives the most tokens per second."""


def measure(params: dict[str, Any], workload: dict[str, int]) -> dict[str, Any]:
    """Serve the workload once. Return the rates, and the digest of all texts.

    `workload`: number of requests, tokens of a prompt that all requests have in common, tokens that differ,
    and tokens to generate.
    """
    port = free_port()
    environment = {
        terms.ENV_PARAMS: json.dumps({**MODEL, **params}),
        terms.ENV_SERVING_HOST: "127.0.0.1",
        terms.ENV_SERVING_PORT: str(port),
        terms.ENV_ENDPOINT_LAG_SECONDS: "0",
    }
    with serving(["convoy_workloads.engines.lm.engine"], port, environment):
        return send(port, workload)[0]


def send(port: int, workload: Mapping[str, int]) -> tuple[dict[str, Any], list[str]]:
    """Send the workload once to a server. Return the rates with the digest of all texts, and the texts."""
    requests = [request(port, _body(number, workload)) for number in range(workload["requests"])]
    warm = [request(port, {"prompt": "warm", "max_tokens": 2, "stream": True})]
    asyncio.run(run_clients(port, warm, 1))
    found = asyncio.run(run_clients(port, requests, CLIENTS))
    answers = texts(found)
    digest = hashlib.sha256("\0".join(answers).encode()).hexdigest()
    rates = {
        "tokens_per_second": workload["requests"] * workload["generate"] / found.seconds,
        "requests_per_second": workload["requests"] / found.seconds,
        "first_token_seconds": statistics.median(found.first_seconds),
        "texts": digest,
    }
    return rates, answers


def _body(number: int, workload: Mapping[str, int]) -> dict[str, Any]:
    own = "".join(chr(97 + (number * 7 + place * place) % 26) for place in range(workload["own"]))
    prompt = ("The same words come first. " * 20)[: workload["common"]] + own
    return {"prompt": prompt, "max_tokens": workload["generate"], "seed": number, "stream": True}


def _common(options: Mapping[str, Any]) -> str:
    return f"prompts with {options['workload']['common']} tokens in common"


def _arm(name: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Arm:
    return function(
        name, measure, {"params": {**params, **options["params"]}, "workload": options["workload"]}
    )


def batching(options: Mapping[str, Any]) -> Arms:
    """Return the arms: continuous batching, one request at a time, and the latter again as the control."""
    return Arms(
        _arm("lm with continuous batching", BATCHED, options),
        (
            _arm("one request at a time", ALONE, options),
            _arm(
                "one request at a time, with the rows of the batch", {**BATCHED, "max_sequences": 1}, options
            ),
        ),
        _arm("one request at a time again", ALONE, options),
    )


def reuse(options: Mapping[str, Any]) -> Arms:
    """Return the arms: prefix reuse, no reuse, and the latter again as the control."""
    return Arms(
        _arm("lm with prefix reuse", BATCHED, options),
        (_arm("lm without prefix reuse", {**BATCHED, "prefix_reuse": False}, options),),
        _arm("lm without prefix reuse again", {**BATCHED, "prefix_reuse": False}, options),
    )


SMALL = {"context": 64, "layers": 1, "width": 32, "heads": 2}
BENCH = Bench(
    sizes={
        "small": {"params": SMALL, "workload": {"requests": 16, "common": 0, "own": 12, "generate": 8}},
        "full": {"params": {}, "workload": {"requests": 32, "common": 0, "own": 16, "generate": 64}},
    },
    arms=batching,
    measures=lambda _: [
        Measure(
            name="tokens per second, 8 clients",
            unit="1/s",
            value_of=lambda trial: float(trial.result["tokens_per_second"]),
            higher_is_better=True,
            target=3.0,
        )
    ],
    equal=(Equality(key="texts", name="all texts"),),
)
REUSE = Bench(
    sizes={
        "small": {"params": SMALL, "workload": {"requests": 16, "common": 40, "own": 4, "generate": 4}},
        "full": {"params": {}, "workload": {"requests": 64, "common": 200, "own": 8, "generate": 8}},
    },
    arms=reuse,
    measures=lambda options: [
        Measure(
            name=f"requests per second, 8 clients, {_common(options)}",
            unit="1/s",
            value_of=lambda trial: float(trial.result["requests_per_second"]),
            higher_is_better=True,
        ),
        Measure(
            name=f"median time to the first token, {_common(options)}",
            unit="s",
            value_of=lambda trial: float(trial.result["first_token_seconds"]),
        ),
    ],
    equal=(Equality(key="texts", name="all texts with and without reuse"),),
)
