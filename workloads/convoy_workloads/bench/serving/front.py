"""Measures the front without compute: streams of 8 tokens per second on one core. The clients run in another
process, on another core.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import uvloop

from convoy_workloads.bench.arms import Arm, function
from convoy_workloads.bench.comparison import alternate
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.serving.clients import request, run_clients
from convoy_workloads.bench.serving.server import serving
from convoy_workloads.local.ports import free_port

TOKENS = 8
TARGET = 5000.0
"""Streams per second that the front must reach."""
SIZES: Mapping[str, Mapping[str, int]] = {
    "small": {"streams": 400, "clients": 16},
    "full": {"streams": 40_000, "clients": 64},
}
ROUNDS = {"small": 1, "full": 7}
KINDS = {
    "front": "Convoy's front",
    "raw": "raw ASGI with prepared bytes (the limit)",
    "starlette": "Starlette's StreamingResponse",
}


def measure(kind: str, streams: int, clients: int) -> dict[str, Any]:
    """Run one server and its clients. Return the streams per second."""
    port = free_port()
    cores = sorted(os.sched_getaffinity(0))
    command = ["convoy_workloads.bench.serving.front_servers", kind, str(port), str(TOKENS)]
    body = {"prompt": "hello", "max_tokens": TOKENS, "stream": True, "temperature": 0}
    with serving(command, port, {}, core=cores[0]):
        if len(cores) > 1:
            os.sched_setaffinity(0, set(cores[1:]))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            one = request(port, body)
            runner.run(run_clients(port, [one] * (streams // 10), clients))
            found = runner.run(run_clients(port, [one] * streams, clients))
    return {"streams_per_second": streams / found.seconds}


def arms(size: str) -> list[Arm]:
    """Return the arms: the front and its two references."""
    return [function(name, measure, {"kind": kind, **SIZES[size]}) for kind, name in KINDS.items()]


def figures(size: str) -> Figures:
    """Return the rows about the front."""
    found = Figures()
    trials = alternate(arms(size), ROUNDS[size])
    for name, those in trials.items():
        target = TARGET if name == KINDS["front"] else None
        metric = Metric(
            f"streams of {TOKENS} tokens per second on one core, without compute: {name}",
            "1/s",
            target if size == "full" else None,
            higher_is_better=True,
        )
        for one in those:
            found.add(metric, one.result["streams_per_second"])
    return found
