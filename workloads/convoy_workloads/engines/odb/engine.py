"""Training on documents of different lengths, with batches that are formed online under a token budget."""

from __future__ import annotations

import time

import torch

import convoy
from convoy.data import pad_batch
from convoy_workloads.engines.gpt.deterministic import be_deterministic
from convoy_workloads.engines.gpt.model import Shape
from convoy_workloads.engines.odb.documents import load
from convoy_workloads.engines.odb.params import Params
from convoy_workloads.engines.odb.training import (
    StepSamples,
    add_gradients,
    endless,
    held_out_loss,
    make_batches,
    make_model,
    mean_loss,
)
from convoy_workloads.runtime.exactness import fingerprint


def main() -> None:
    """Run one rank of the training."""
    with convoy.join(Params) as job:
        train(job)


def train(job: convoy.Job[Params]) -> None:
    """Restore the model and the position in the data, then train, report the steps and save checkpoints."""
    params = job.params
    be_deterministic(job.device)
    documents, held_out = load(params)
    plain, model = make_model(params, job.device, job.world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate, betas=(0.9, 0.95))
    batches = make_batches(documents, params, job.rank, job.world)

    def warm() -> None:
        mean_loss(model, pad_batch([held_out[0]]), job.device).backward()  # type: ignore[no-untyped-call]

    samples = StepSamples(params.samples_per_step)
    extra = {"shape": Shape(params.heads), "batches": batches, "step_samples": samples}
    job.restore(model=model, optimizer=optimizer, extra=extra, warm=warm)
    stream, micro_batches, began = endless(batches), 0, time.monotonic()
    for step in job.steps(params.steps):
        optimizer.zero_grad(set_to_none=True)
        update = add_gradients(model, batches, stream, samples, job.device)
        optimizer.step()
        micro_batches += update.batches
        now = time.monotonic()
        metrics = {
            "tokens_per_second": update.weights / max(now - began, 1e-9),
            "micro_batches": micro_batches,
            "samples_per_step": samples.reached,
            **batches.metrics(),
        }
        began = now
        if step % params.held_out_every == 0 or step == params.steps:
            metrics["held_out_loss"] = held_out_loss(plain, held_out, job.device, job.rank, job.world)
        job.report(step, loss=update.loss, samples=update.samples, metrics=metrics, tokens=update.own_tokens)
        job.checkpoint(step)

    if job.rank == 0:
        print(f"state after step {params.steps}: sha256 {fingerprint(plain, optimizer)}", flush=True)


if __name__ == "__main__":
    main()
