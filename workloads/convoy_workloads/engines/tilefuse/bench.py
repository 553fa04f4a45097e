"""Measures tilefuse against lm in bfloat16: tokens per second and time to the first token on one server.

All arms serve the same model of the family Llama with random weights, and so make different texts. The
control is tilefuse without quantisation, which is lm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from convoy_crds import terms
from convoy_workloads.bench.arms import Arm, Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.bench.serving.server import serving
from convoy_workloads.engines.lm.bench import send
from convoy_workloads.kernels.threads import available_threads
from convoy_workloads.local.ports import free_port

MODEL = {
    "architecture": "llama",
    "context": 256,
    "layers": 6,
    "width": 2048,
    "heads": 16,
    "kv_heads": 8,
    "feed": 5632,
    "kv_tokens": 4096,
}
"""A model of 283 million parameters, which are 566 MB in bfloat16."""
SMALL = {"architecture": "llama", "context": 64, "layers": 1, "width": 64, "heads": 2, "kv_tokens": 1024}
W4A16 = {"engine": "tilefuse", "quant": {"scheme": "w4a16"}}
W8A16 = {"engine": "tilefuse", "quant": {"scheme": "w8a16"}}
BF16 = {"engine": "tilefuse", "quant": {"scheme": "bf16"}, "rows": 16}
LM = {"engine": "lm", "dtype": "bfloat16", "rows": 16}


def measure(params: dict[str, Any], workload: dict[str, int]) -> dict[str, Any]:
    """Serve the workload once. Return the rates, and the number of generated tokens."""
    port = free_port()
    own = {**params, "threads": available_threads()}
    engine = own.pop("engine")
    environment = {
        terms.ENV_PARAMS: json.dumps(own),
        terms.ENV_SERVING_HOST: "127.0.0.1",
        terms.ENV_SERVING_PORT: str(port),
        terms.ENV_ENDPOINT_LAG_SECONDS: "0",
    }
    with serving([f"convoy_workloads.engines.{engine}.engine"], port, environment):
        rates, texts = send(port, workload)
    return {**rates, "answers": len(texts)}


def _arm(name: str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Arm:
    own = {**params, **options["model"]}
    if "quant" in own:
        own["quant"] = {**own["quant"], "group_size": options["group_size"]}
    return function(name, measure, {"params": own, "workload": options["workload"]})


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: weights of 4 bits, bfloat16 in lm, weights of 8 bits, and bfloat16 in tilefuse."""
    return Arms(
        _arm("tilefuse w4a16", W4A16, options),
        (_arm("lm in bfloat16", LM, options), _arm("tilefuse w8a16", W8A16, options)),
        _arm("tilefuse bf16", BF16, options),
    )


BENCH = Bench(
    sizes={
        "small": {
            "model": SMALL,
            "group_size": 32,
            "workload": {"requests": 16, "common": 0, "own": 12, "generate": 8},
        },
        "full": {
            "model": MODEL,
            "group_size": 128,
            "workload": {"requests": 16, "common": 0, "own": 64, "generate": 32},
        },
    },
    arms=arms,
    measures=lambda _: [
        Measure(
            name="tokens per second, 8 clients",
            unit="1/s",
            value_of=lambda trial: float(trial.result["tokens_per_second"]),
            higher_is_better=True,
            target=1.5,
        ),
        Measure(
            name="median time to the first token, 8 clients",
            unit="s",
            value_of=lambda trial: float(trial.result["first_token_seconds"]),
        ),
    ],
    equal=(Equality(key="answers", name="number of answers"),),
)
