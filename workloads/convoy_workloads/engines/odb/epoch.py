"""Arms of the bench: one epoch each, or the training to a target loss, as a plain program for torchrun.

The command is `torchrun --nproc-per-node=2 -m convoy_workloads.engines.odb.epoch RESULT OPTIONS`. OPTIONS is
a JSON object with `params`, and optionally `target_loss`, at which the training ends; `package`, the folder
of the published package, whose loader is used instead; and `empty_every`: one document in so many is empty.
With `arms`, a list of such objects, and `rounds`, the processes run all arms in each round, and each round
starts with another arm. With `seeds`, each round has a seed of its own. Rank 0 writes the result, or a list
of the results of each arm:

- `seconds`, `processor_seconds`: from the first batch on. Processor time is of all ranks and their loaders,
  without the measurement of the held-out loss.
- `samples`: SHA-256 of the numbers of all samples used, which is equal if each was used as often.
- `count`, `distinct`: samples used, and different samples used. `left_out`: samples that the loader reports
  as left out.
- `batches`, `steps`, `padding`, `tokens`, `loss`: `padding` and `tokens` come from the tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from convoy_workloads.engines.odb.documents import IGNORED, Documents, load
from convoy_workloads.engines.odb.package_batches import PackageBatches
from convoy_workloads.engines.odb.params import Params
from convoy_workloads.engines.odb.training import (
    StepSamples,
    add_gradients,
    held_out_loss,
    make_batches,
    make_model,
    mean_loss,
)

EPOCHS = 50
"""Maximum number of epochs until the target loss. A training that does not reach it ends with an error."""
CPU = torch.device("cpu")


@dataclass
class TensorCounts:
    """Counts of this rank's batches, from their tensors."""

    numbers: list[int] = field(default_factory=list)
    padded: int = 0
    tokens: int = 0
    batches: int = 0

    def watch(self, batches: Any, epochs: int) -> Iterator[Any]:
        """Yield the batches of some epochs, and count them."""
        for batch in chain.from_iterable(repeat(batches, epochs)):
            self.batches += 1
            if batches.info.samples:
                self.numbers += batch["number"].tolist()
                self.padded += batch["input_ids"].numel()
                self.tokens += int((batch["labels"] != IGNORED).sum())
            yield batch


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    """Run one rank."""
    result, text = sys.argv[1:]
    options = json.loads(text)
    dist.init_process_group("gloo")
    found: Any = alternate(**options) if "arms" in options else run(**options)
    if dist.get_rank() == 0:
        Path(result).write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # Threads of torch may abort a process of torchrun that ends normally (bench/stopwatch.py).


def alternate(arms: list[dict[str, Any]], rounds: int, seeds: bool = False) -> list[list[dict[str, Any]]]:
    """Return the results of each arm, one for each round. `seeds`: True for another seed in each round."""
    found: list[list[dict[str, Any]]] = [[] for _ in arms]
    for number in range(rounds):
        for place in range(len(arms)):
            at = (number + place) % len(arms)
            options = dict(arms[at])
            if seeds:
                options["params"] = {**options["params"], "seed": 1 + number}
            found[at].append(run(**options))
    return found


def run(
    params: dict[str, Any],
    target_loss: float | None = None,
    package: str | None = None,
    empty_every: int | None = None,
) -> dict[str, Any]:
    """Train, and return the result."""
    given = Params.model_validate(params)
    documents, held_out = load(given)
    if empty_every is not None:
        documents = documents.with_empty(empty_every)
    return _train(given, documents, held_out, target_loss, package)


def _train(
    params: Params, documents: Documents, held_out: Documents, target_loss: float | None, package: str | None
) -> dict[str, Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    plain, model = make_model(params, CPU, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate, betas=(0.9, 0.95))
    batches: Any = (
        PackageBatches(package, documents, params, rank, world)
        if package
        else make_batches(documents, params, rank, world)
    )
    _warm(model, documents, params)
    seen, steps, loss, untimed = TensorCounts(), 0, float("inf"), [0.0, 0.0]
    dist.barrier()
    began = time.monotonic(), processor_seconds()
    stream = seen.watch(batches, 1 if target_loss is None else EPOCHS)
    samples = StepSamples(params.samples_per_step)
    while target_loss is None or loss > target_loss:
        optimizer.zero_grad(set_to_none=True)
        try:
            add_gradients(model, batches, stream, samples, CPU)
        except StopIteration:
            if target_loss is not None:
                raise RuntimeError(f"the loss is {loss:.2f} after {EPOCHS} epochs") from None
            break
        optimizer.step()
        steps += 1
        if target_loss is not None and steps % params.held_out_every == 0:
            before = time.monotonic(), processor_seconds()
            loss = held_out_loss(plain, held_out, CPU, rank, world)
            untimed[0] += time.monotonic() - before[0]
            untimed[1] += processor_seconds() - before[1]
    dist.barrier()
    spent = time.monotonic() - began[0] - untimed[0], processor_seconds() - began[1] - untimed[1]
    if target_loss is None:
        loss = held_out_loss(plain, held_out, CPU, rank, world)
    left_out = 0 if package else int(batches.metrics()["quarantined_total"])
    return {**_result(seen, spent), "steps": steps, "loss": loss, "left_out": left_out}


def _warm(model: torch.nn.Module, documents: Documents, params: Params) -> None:
    """Run two passes over the longest document, so that no arm's time has the first use of memory."""
    longest = max(range(len(documents)), key=documents.lengths().__getitem__)
    sample = documents[longest]
    batch = {name: sample[name][None, : params.longest] for name in ("input_ids", "labels")}
    for _ in range(2):
        mean_loss(model, batch, CPU).backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)


def _result(seen: TensorCounts, spent: tuple[float, float]) -> dict[str, Any]:
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, (seen, spent))
    numbers = sorted(number for one, _ in gathered for number in one.numbers)
    padded = sum(one.padded for one, _ in gathered)
    tokens = sum(one.tokens for one, _ in gathered)
    return {
        "seconds": max(one[0] for _, one in gathered),
        "processor_seconds": sum(one[1] for _, one in gathered),
        "samples": hashlib.sha256(json.dumps(numbers).encode()).hexdigest(),
        "count": len(numbers),
        "distinct": len(set(numbers)),
        "batches": seen.batches,
        "unequal": len({one.batches for one, _ in gathered}) - 1,
        "padding": 1 - tokens / padded,
        "tokens": tokens,
    }


if __name__ == "__main__":
    main()
