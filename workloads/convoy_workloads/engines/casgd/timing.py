"""Times trainings on two ranks of this machine, which run different values of s in turns.

A timed training draws the batches, gathers their rows, and computes and communicates as in a job. The links
are those of gloo, or emulated ones with a latency (`convoy_workloads.comm`); the same for every s.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from convoy_workloads.comm.linked_group import init
from convoy_workloads.comm.links import Link, Links
from convoy_workloads.engines.casgd.data import Problem, batch, columns_of, synth
from convoy_workloads.optim.casgd import CASGD, CASGDOptions
from convoy_workloads.optim.precision import with_choices

WORLD = 2
TIMEOUT = timedelta(seconds=120)
Workload = Mapping[str, Any]
"""`loss`, `rows`, `columns`, `batch`, `iterations`, `lr`, and `latency` of a link in seconds. An all-reduce
of two ranks has two steps, so it takes at least twice the latency."""
Variant = Mapping[str, Any]
"""`s`, and `precision` (`fp32` by default)."""


def trainings(
    workload: Workload, variants: Mapping[str, Variant], rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """Train every variant once in each round. Return the results by name of the variant.

    A result has the wall and processor `seconds` of rank 0, the `calls` and `bytes` of its collectives, and
    the `loss` over all rows. Each round starts with another variant. A first round is not counted.
    """
    with tempfile.TemporaryDirectory(prefix="convoy-casgd-") as folder:
        arguments = (folder, dict(workload), {name: dict(one) for name, one in variants.items()}, rounds)
        spawn(_rank, arguments, nprocs=WORLD)  # type: ignore[no-untyped-call]
        found: dict[str, list[dict[str, Any]]] = json.loads((Path(folder) / "results.json").read_text())
    return found


def one_training(workload: Workload, variant: Variant) -> dict[str, Any]:
    """Train a variant once. It is an arm of the engine's bench."""
    return trainings(workload, {"only": variant}, 1)["only"][0]


def _rank(rank: int, folder: str, workload: Workload, variants: Mapping[str, Variant], rounds: int) -> None:
    torch.set_num_threads(1)
    settings: dict[str, Any] = {
        "init_method": f"file://{folder}/rendezvous",
        "rank": rank,
        "world_size": WORLD,
        "timeout": TIMEOUT,
    }
    if workload["latency"]:
        init(Links(Link(math.inf, workload["latency"])), **settings)
    else:
        dist.init_process_group("gloo", **settings)
    problem = synth(workload["loss"], workload["rows"], workload["columns"] - 1, seed=1)
    own = columns_of(rank, WORLD, workload["columns"], "contiguous")
    mine = Problem(problem.features[:, own].float(), problem.targets.float())
    names: Sequence[str] = list(variants)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(-1, rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            result = _train(mine, workload, variants[name])
            if number >= 0:
                results[name].append(result)
    if rank == 0:
        (Path(folder) / "results.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


def _train(mine: Problem, workload: Workload, variant: Variant) -> dict[str, Any]:
    options = CASGDOptions(
        loss=workload["loss"],
        lr=workload["lr"],
        batch=workload["batch"],
        s=variant["s"],
        precision=with_choices(variant.get("precision", "fp32"), {}),
    )
    optimizer = CASGD(mine.features, mine.targets, options)
    dist.barrier()
    began, processor = time.perf_counter(), time.process_time()
    for iteration in range(workload["iterations"]):
        optimizer.step(batch(1, iteration, len(mine.features), workload["batch"]))
    optimizer.flush()
    dist.barrier()
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    traffic = optimizer.collectives.traffic
    counted = {"calls": traffic.calls, "bytes": traffic.payload_bytes, "s": optimizer.s}
    return {"seconds": seconds, "processor_seconds": processor, **counted, "loss": optimizer.loss()}
