"""The training of the engine adaptiveload: the loader, the measured steps, and the gradients of all ranks."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from convoy.data import AdaptiveBuckets, BucketOptions, Timing
from convoy_workloads.data.dealing import imbalance
from convoy_workloads.engines.adaptiveload.params import Params
from convoy_workloads.engines.adaptiveload.videos import Videos, noised

WARM, REPEATS = 1, 2
"""Passes over each size before the profile's clock starts, and passes that it takes the faster of."""
HELD_OUT = 4
"""Videos of each entry of the buckets in a measurement of the held-out loss."""


def make_batches(params: Params) -> AdaptiveBuckets:
    """Return the loader of the videos."""
    videos = Videos(params.samples, params.buckets, params.channels, params.seed)
    options = BucketOptions(
        memory_tokens=params.memory_tokens,
        rule=params.rule,
        compute=params.compute,
        exponent=params.exponent,
        dealing=params.dealing,
        window=params.window,
        refit_steps=params.refit_steps,
        seed=params.seed,
    )
    return AdaptiveBuckets(videos, videos.tokens, options, collate=torch.stack)


def loss_of(model: nn.Module, videos: Tensor, key: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the mean loss of a batch."""
    noisy, moments, velocity = (one.to(device) for one in noised(videos, key))
    return F.mse_loss(model(noisy, moments), velocity)


def own_seconds(device: torch.device) -> float:
    """Return a clock of this rank's own work, in seconds: processor time on a CPU, so that waiting for other
    processes does not count; on a GPU, time after all its work is done.
    """
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def profile(model: nn.Module, params: Params, device: torch.device) -> list[Timing]:
    """Measure a forward and backward pass of each bucket, with one sample and with as many as fit."""
    found = []
    for tokens in sorted(set(params.buckets)):
        for batch in sorted({1, max(1, params.memory_tokens // tokens)}):
            videos = torch.zeros(batch, tokens, params.channels)
            times = []
            for _ in range(WARM + REPEATS):
                before = own_seconds(device)
                loss_of(model, videos, (0,), device).backward()  # type: ignore[no-untyped-call]
                times.append(own_seconds(device) - before)
            found.append(Timing(batch, tokens, max(1e-9, min(times[WARM:]))))
    model.zero_grad(set_to_none=True)
    return found


class StepTimes:
    """The times of all ranks for each step. They travel with the gradients, so they need no message."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self.steps: list[list[float]] = []

    @property
    def imbalance(self) -> float:
        """Share of their time that the ranks wait for the slowest, over all steps so far."""
        return imbalance(self.steps)

    @property
    def busy(self) -> float:
        """Seconds of the slowest ranks, over all steps so far."""
        return sum(map(max, self.steps))

    def average(self, model: nn.Module, scale: float, loss: float, seconds: float) -> float:
        """Replace the gradients by the sum over the ranks of scale/world times their gradients. Return the
        mean of the losses, weighted in the same way.
        """
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        share = scale / self._world
        extra = torch.zeros(self._world + 1, device=gradients[0].device)
        extra[self._rank], extra[-1] = seconds, loss * share
        flat = torch.cat([*(one.flatten() * share for one in gradients), extra])
        if self._world > 1:
            dist.all_reduce(flat)
        at = 0
        for one in gradients:
            one.copy_(flat[at : at + one.numel()].view_as(one))
            at += one.numel()
        self.steps.append(flat[at:-1].tolist())
        return float(flat[-1])


def train_step(
    model: nn.Module, batches: AdaptiveBuckets, videos: Tensor, times: StepTimes, place: tuple[Any, ...]
) -> float:
    """Compute the gradients of all ranks for a batch, and record this rank's own time. Return the mean loss
    of the step. `place`: seed, number of the step, and device.
    """
    seed, step, device = place
    info = batches.info
    if info is None:
        raise RuntimeError("the loader yielded a batch without its description")
    began = own_seconds(device)
    # The noise depends on the samples, so that it is the same in any dealing.
    loss = loss_of(model, videos, (seed, step, *info.samples), device)
    loss.backward()  # type: ignore[no-untyped-call]
    seconds = own_seconds(device) - began
    batches.record(seconds)
    return times.average(model, info.scale, float(loss.detach()), seconds if info.samples else 0.0)


@torch.no_grad()
def held_out_loss(model: nn.Module, params: Params, device: torch.device) -> float:
    """Return the mean loss over videos that the model never trains on: some of each size, each with the same
    noise in every call.
    """
    count = HELD_OUT * len(params.buckets)
    videos = Videos(params.samples + count, params.buckets, params.channels, params.seed)
    numbers = range(params.samples, params.samples + count)
    losses = [float(loss_of(model, videos[one][None], (params.seed, one), device)) for one in numbers]
    return sum(losses) / count
