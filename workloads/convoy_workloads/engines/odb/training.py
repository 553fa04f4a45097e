"""The training of the engine odb: its batches, and optimizer steps from the gradients of several batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from convoy.data import OnlineBatches, OnlineOptions, SampleFunctions, pad_batch
from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.odb.documents import IGNORED, Documents
from convoy_workloads.engines.odb.params import Params
from convoy_workloads.engines.odb.planned import Limits, PlannedBatches, planned_batches
from convoy_workloads.runtime import ParamsError

Batches = OnlineBatches | PlannedBatches


def make_batches(documents: Documents, params: Params, rank: int, world: int) -> Batches:
    """Return the batches of `params.batching`. Raises ParamsError for a baseline with options of the method.

    Documents that are too long are cut for the baselines, so `reject` works with online batching only.
    """
    if params.batching in {"online", "blind"}:
        return OnlineBatches(documents, options_of(params), functions_of(params))
    if params.mode != "join" or params.overlong_policy != "truncate":
        raise ParamsError(f"batching: {params.batching} needs mode: join and overlong_policy: truncate")
    lengths = [min(one, params.longest) for one in documents.lengths()]
    limits = Limits(params.token_budget, params.longest, params.batch_overhead)
    cut = Truncated(documents, params.longest)
    return planned_batches(cut, lengths, params.batching, limits, (rank, world, params.seed))


def options_of(params: Params) -> OnlineOptions:
    """Return the options of online batching."""
    return OnlineOptions(
        tokens=params.token_budget,
        window=params.window,
        longest=params.longest,
        overlong=params.overlong_policy,
        mode=params.mode,
        sample_quota=params.sample_quota,
        loss_scaling=params.loss_scaling,
        overhead=params.batch_overhead,
        slots=params.slots,
        warmup_rounds=params.warmup_rounds,
        seed=params.seed,
        workers=params.workers,
    )


def functions_of(params: Params) -> SampleFunctions:
    """Return the functions of online batching. The negative control `blind` sees no true length."""
    if params.batching != "blind":
        return SampleFunctions(collate=pad_batch)
    return SampleFunctions(
        length=lambda sample: params.longest if len(sample["input_ids"]) else 0,
        weight=lambda sample: min(params.longest, len(sample["input_ids"])),
        collate=lambda samples: pad_batch([_cut(one, params.longest) for one in samples]),
    )


@dataclass(frozen=True)
class Truncated:
    """Documents that are cut to a maximum length."""

    documents: Documents
    longest: int

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return _cut(self.documents[number], self.longest)


def _cut(sample: dict[str, Tensor], longest: int) -> dict[str, Tensor]:
    return {name: one[:longest] if one.dim() else one for name, one in sample.items()}


def endless(batches: Batches) -> Iterator[dict[str, Tensor]]:
    """Yield the batches of one epoch after the other."""
    while True:
        yield from batches


def mean_loss(model: nn.Module, batch: dict[str, Tensor], device: torch.device) -> Tensor:
    """Return the mean loss over the tokens of a batch that are no padding."""
    logits = model(batch["input_ids"].to(device))
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].to(device).flatten(), ignore_index=IGNORED)


def make_model(params: Params, device: torch.device, world: int) -> tuple[GPT, nn.Module]:
    """Return the model, and the same model with its gradients averaged over the ranks."""
    torch.manual_seed(params.seed)
    plain = GPT(params.longest, params.layers, params.width, params.heads).to(device)
    return plain, plain if world == 1 else DistributedDataParallel(plain)


@dataclass
class Update:
    """The batches of one optimizer step."""

    batches: int = 0
    samples: int = 0
    """Samples of all ranks."""
    weights: int = 0
    """Tokens of all ranks, without padding."""
    own_tokens: int = 0
    loss: float = float("nan")
    """Mean loss of this rank's newest batch with samples."""


class StepSamples:
    """The samples of optimizer steps, which are `mean` on average.

    A step ends with a whole batch, so it can have more samples than it should. The next steps then have as
    many fewer. Thus kinds of batching with batches of different sizes have equal samples per step.
    """

    def __init__(self, mean: int) -> None:
        """`mean`: samples of a step over all ranks. A step has at least one batch."""
        self._mean = mean
        self._steps = self._samples = 0

    def start(self) -> None:
        """Start a step."""
        self._steps += 1

    def add(self, samples: int) -> bool:
        """Add the samples of a batch. Return True if the step ends with this batch."""
        self._samples += samples
        return self._samples >= self._mean * self._steps

    @property
    def reached(self) -> float:
        """Mean samples of the steps so far."""
        return self._samples / self._steps if self._steps else 0.0

    def state_dict(self) -> dict[str, int]:
        """Return the state between two steps."""
        return {"steps": self._steps, "samples": self._samples}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue after the step of a state."""
        self._steps, self._samples = int(saved["steps"]), int(saved["samples"])


def add_gradients(
    model: nn.Module, batches: Batches, stream: Iterator[Any], samples: StepSamples, device: torch.device
) -> Update:
    """Add the gradients of the batches of a step. Afterwards they are those of the mean loss over all tokens
    of the step.
    """
    update, last = Update(), False
    samples.start()
    while not last:
        batch = next(stream)
        info = batches.info
        if info is None:
            raise RuntimeError("the loader yielded a batch without its description")
        update.batches += 1
        update.samples += info.all_samples
        update.weights += info.all_weights
        update.own_tokens += info.weight
        last = samples.add(info.all_samples)
        alone = isinstance(model, DistributedDataParallel) and not last
        with model.no_sync() if alone else nullcontext():  # type: ignore[operator]
            loss = mean_loss(model, batch, device)
            # The scale makes it the sum over the tokens of all ranks, once the gradients are averaged.
            (loss * (info.scale * info.all_weights)).backward()  # type: ignore[no-untyped-call]
        if info.samples:
            update.loss = float(loss.detach())
    for one in model.parameters():
        if one.grad is not None:
            one.grad /= update.weights
    return update


@torch.no_grad()
def held_out_loss(
    model: nn.Module, documents: Documents, device: torch.device, rank: int, world: int
) -> float:
    """Return the mean loss per byte over the held-out documents. Each rank computes a share of them, and
    every rank returns the same value.
    """
    total = torch.zeros(2, dtype=torch.float64)
    for number in range(rank, len(documents), world):
        sample = documents[number]
        tokens = len(sample["labels"])
        total[0] += float(mean_loss(model, pad_batch([sample]), device)) * tokens
        total[1] += tokens
    if world > 1:
        total = total.to(device)
        dist.all_reduce(total)
    return float(total[0] / total[1])
