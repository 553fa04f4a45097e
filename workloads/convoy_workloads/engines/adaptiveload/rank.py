"""Arms of the bench: one epoch each, as a plain program for torchrun.

The command is `torchrun --nproc-per-node=2 -m convoy_workloads.engines.adaptiveload.rank RESULT OPTIONS`.
OPTIONS is a JSON object with `params`; or with `arms`, a list of params, and `rounds`: then the processes run
all arms in each round, and each round starts with another arm. Rank 0 writes the result, or a list of the
results of each arm. `busy` is the sum of the longest of the ranks' own times of each step: the time of the
epoch if each rank had a machine of its own. `least` is that time if no rank waited for another.
`processor_seconds` are those of all ranks. `peak_memory_bytes` is the memory of rank 0 beyond that before the
first step; it compares only between arms that run in processes of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from convoy_workloads.engines.adaptiveload.memory import PeakGrowth
from convoy_workloads.engines.adaptiveload.model import DiT
from convoy_workloads.engines.adaptiveload.params import Params
from convoy_workloads.engines.adaptiveload.training import (
    StepTimes,
    held_out_loss,
    make_batches,
    profile,
    train_step,
)

CPU = torch.device("cpu")


def main() -> None:
    """Run one rank."""
    result, text = sys.argv[1:]
    dist.init_process_group("gloo")
    options = json.loads(text)
    found: Any = alternate(**options) if "arms" in options else run(**options)
    if dist.get_rank() == 0:
        Path(result).write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # Threads of torch may abort a process of torchrun that ends normally (bench/stopwatch.py).


def alternate(arms: list[dict[str, Any]], rounds: int) -> list[list[dict[str, Any]]]:
    """Return the results of each arm, one for each round."""
    found: list[list[dict[str, Any]]] = [[] for _ in arms]
    for number in range(rounds):
        for place in range(len(arms)):
            at = (number + place) % len(arms)
            found[at].append(run(arms[at]))
    return found


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Train one epoch, and return the result."""
    return _train(Params.model_validate(params))


def _train(params: Params) -> dict[str, Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(params.seed)
    model = DiT(params)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate)
    batches = make_batches(params)
    timings = profile(model, params, CPU)
    if params.rule != "equal_tokens":
        batches.profile(timings)
    times, samples, tokens = StepTimes(rank, world), list[int](), 0
    dist.barrier()
    memory = PeakGrowth()
    began, processor = time.monotonic(), time.process_time()
    for step, videos in enumerate(batches, 1):
        optimizer.zero_grad(set_to_none=True)
        train_step(model, batches, videos, times, (params.seed, step, CPU))
        optimizer.step()
        if batches.info is not None:
            samples += batches.info.samples
            tokens += len(batches.info.samples) * batches.info.tokens
    spent = time.process_time() - processor
    dist.barrier()
    wall = time.monotonic() - began
    peak = memory.bytes()
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, (samples, tokens, spent))
    used = sorted(sample for one, _, _ in gathered for sample in one)
    return {
        "seconds": wall,
        "busy": times.busy,
        "least": sum(map(statistics.fmean, times.steps)),
        "processor_seconds": sum(one for _, _, one in gathered),
        "samples": hashlib.sha256(json.dumps(used).encode()).hexdigest(),
        "tokens": sum(one for _, one, _ in gathered),
        "steps": len(times.steps),
        "imbalance": times.imbalance,
        "loss": held_out_loss(model, params, CPU),
        "versions": batches.table.version,
        "sizes": batches.table.sizes,
        "peak_memory_bytes": peak,
        **{name: batches.metrics()[name] for name in ("fitted_p", "cost_mape")},
    }


if __name__ == "__main__":
    main()
