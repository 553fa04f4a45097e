"""Training of a diffusion transformer on videos of different sizes, with batches that balance the ranks."""

from __future__ import annotations

import torch

import convoy
from convoy_workloads.engines.adaptiveload.memory import peak_memory_bytes
from convoy_workloads.engines.adaptiveload.model import DiT
from convoy_workloads.engines.adaptiveload.params import Params
from convoy_workloads.engines.adaptiveload.training import (
    StepTimes,
    loss_of,
    make_batches,
    profile,
    train_step,
)
from convoy_workloads.engines.gpt.deterministic import be_deterministic
from convoy_workloads.runtime.exactness import fingerprint


def main() -> None:
    """Run one rank of the training."""
    with convoy.join(Params) as job:
        train(job)


def train(job: convoy.Job[Params]) -> None:
    """Restore the model, the table of batch sizes and the position in the data. Then train, report the steps
    and save checkpoints.
    """
    params = job.params
    be_deterministic(job.device)
    torch.manual_seed(params.seed)
    model = DiT(params).to(job.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate)
    batches = make_batches(params)

    def warm() -> None:
        videos = torch.zeros(1, min(params.buckets), params.channels)
        loss_of(model, videos, (0,), job.device).backward()  # type: ignore[no-untyped-call]

    job.restore(model=model, optimizer=optimizer, extra={"batches": batches}, warm=warm)
    if params.profile and not job.restored.step and params.rule != "equal_tokens":
        batches.profile(profile(model, params, job.device))
    times, stream, trained = StepTimes(job.rank, job.world), iter(batches), 0
    for step in job.steps(params.steps):
        with job.loading():
            videos = next(stream, None)
            if videos is None:  # the next epoch
                stream = iter(batches)
                videos = next(stream)
        optimizer.zero_grad(set_to_none=True)
        loss = train_step(model, batches, videos, times, (params.seed, step, job.device))
        optimizer.step()
        info = batches.info
        samples, tokens = (info.all_samples, len(info.samples) * info.tokens) if info else (0, 0)
        trained += samples
        metrics = {
            **batches.metrics(),
            "imbalance_ratio": times.imbalance,
            "samples_per_busy_second": trained / max(times.busy, 1e-9),
            "peak_memory_bytes": peak_memory_bytes(job.device),
        }
        job.report(step, loss=loss, samples=samples, metrics=metrics, tokens=tokens)
        job.checkpoint(step)

    if job.rank == 0:
        print(f"state after step {params.steps}: sha256 {fingerprint(model, optimizer)}", flush=True)


if __name__ == "__main__":
    main()
