"""Times trainings on two ranks of this machine, which run different values of s in turns.

A timed training draws the batches, gathers their rows, and computes and communicates as in a job. The links
are those of gloo, or emulated ones with a latency (`convoy_workloads.comm`); the same for every s.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from convoy_workloads.engines.casgd.data import Problem, batch, columns_of, synth
from convoy_workloads.engines.casgd.ranks import on_ranks
from convoy_workloads.optim.casgd import CASGD, CASGDOptions
from convoy_workloads.optim.precision import with_choices

Workload = Mapping[str, Any]
"""`loss`, `rows`, `columns`, `batch`, `iterations`, `lr`, and `latency` of a link in seconds."""
Variant = Mapping[str, Any]
"""`s`, and `precision` (`fp32` by default)."""
Results = dict[str, list[dict[str, Any]]]


def trainings(workload: Workload, variants: Mapping[str, Variant], rounds: int) -> Results:
    """Train every variant once in each round. Return the results by name of the variant.

    A result has the wall and processor `seconds` of rank 0 for the iterations, the `choice_seconds` before
    them in which `auto` has measured its costs, the `calls` and `bytes` of the collectives, and the `loss`
    over all rows. Each round starts with another variant. A first round is not counted.
    """
    named = {name: dict(one) for name, one in variants.items()}
    found: Results = on_ranks(_rounds, dict(workload), named, rounds, latency=workload["latency"])
    return found


def one_training(workload: Workload, variant: Variant) -> dict[str, Any]:
    """Train a variant once. It is an arm of the engine's bench."""
    return trainings(workload, {"only": variant}, 1)["only"][0]


def _rounds(workload: Workload, variants: Mapping[str, Variant], rounds: int) -> Results:
    problem = synth(workload["loss"], workload["rows"], workload["columns"] - 1, seed=1)
    own = columns_of(dist.get_rank(), dist.get_world_size(), workload["columns"], "contiguous")
    mine = Problem(problem.features[:, own].float(), problem.targets.float())
    names: Sequence[str] = list(variants)
    results: Results = {name: [] for name in names}
    for number in range(-1, rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            result = _train(mine, workload, variants[name])
            if number >= 0:
                results[name].append(result)
    return results


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
    times = {
        "seconds": seconds,
        "processor_seconds": processor,
        "choice_seconds": optimizer.choice_seconds,
    }
    return {**times, **counted, "loss": optimizer.loss()}
