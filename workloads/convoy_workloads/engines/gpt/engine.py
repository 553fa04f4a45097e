"""Data-parallel training of a small language model. The module is an example of an engine."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import convoy
from convoy_workloads.engines.gpt import data
from convoy_workloads.engines.gpt.deterministic import be_deterministic
from convoy_workloads.engines.gpt.model import GPT, Shape
from convoy_workloads.engines.gpt.params import Params
from convoy_workloads.engines.gpt.schedule import learning_rate
from convoy_workloads.runtime.exactness import fingerprint

HELD_OUT_SEED = 2**31
"""Seed of the held-out batches. It is outside the range of `params.seed`, so no training batch has the same
seed.
"""


def main() -> None:
    """Run one rank of the training."""
    with convoy.join(Params) as job:
        train(job)


def train(job: convoy.Job[Params]) -> None:
    """Restore the model, then train it, report the steps and save checkpoints."""
    params = job.params
    be_deterministic(job.device)
    corpus = data.load(int(params.data_megabytes * 1e6))
    torch.manual_seed(params.seed)
    experts = (params.experts, params.top_k)
    plain = GPT(params.context, params.layers, params.width, params.heads, *experts).to(job.device)
    model: nn.Module = plain if job.world == 1 else DistributedDataParallel(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate, betas=(0.9, 0.95))

    def loss_of(step: int) -> torch.Tensor:
        with job.loading():
            inputs, targets = data.batch(
                corpus.train, params.seed, step, job.rank, params.batch, params.context
            )
        logits = model(inputs.to(job.device))
        return F.cross_entropy(logits.flatten(0, 1), targets.to(job.device).flatten())

    def objective(loss: torch.Tensor) -> torch.Tensor:
        return loss + params.balance_weight * penalty(plain) if params.experts else loss

    def warm() -> None:
        objective(loss_of(0)).backward()  # type: ignore[no-untyped-call]

    shape = Shape(params.heads, params.top_k if params.experts else 0)
    job.restore(model=model, optimizer=optimizer, extra={"shape": shape}, warm=warm)
    for step in job.steps(params.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, params)
        loss = loss_of(step)
        optimizer.zero_grad(set_to_none=True)
        objective(loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        metrics = {"expert_imbalance": imbalance(plain)} if params.experts else {}
        if step % params.held_out_every == 0 or step == params.steps:
            metrics["held_out_loss"] = measure(job, plain, corpus)
        job.report(step, loss=loss.item(), samples=params.batch * job.world, metrics=metrics)
        job.checkpoint(step)

    if job.rank == 0:
        # The printed text depends only on the trained steps. So two runs can be compared even if they had
        # different faults.
        print(f"state after step {params.steps}: sha256 {fingerprint(plain, optimizer)}", flush=True)
    if job.rank == 0 and params.sample_bytes:
        generator = torch.Generator().manual_seed(params.seed)
        text = plain.write(b"def ", params.sample_bytes, generator).decode("utf-8", "replace")
        print(f"--- the model writes ---\ndef {text}\n---", flush=True)


def penalty(model: GPT) -> torch.Tensor:
    """Return the mean penalty over the blocks, for the last forward pass."""
    return torch.stack([layer.penalty for layer in model.expert_layers]).mean()


def imbalance(model: GPT) -> float:
    """Return the tokens of the busiest expert over the mean, in the worst block."""
    return max(layer.imbalance for layer in model.expert_layers)


@torch.no_grad()
def measure(job: convoy.Job[Params], model: GPT, corpus: data.Corpus) -> float:
    """Return the mean loss over all held-out batches. Each rank computes a share of the batches, and every
    rank returns the same value.
    """
    params = job.params
    total = torch.zeros(2, device=job.device)
    for number in range(job.rank, params.held_out_batches, job.world):
        inputs, targets = data.batch(corpus.held_out, HELD_OUT_SEED, number, 0, params.batch, params.context)
        logits = model(inputs.to(job.device))
        total[0] += F.cross_entropy(logits.flatten(0, 1), targets.to(job.device).flatten())
        total[1] += 1
    if job.world > 1:
        dist.all_reduce(total)
    return float(total[0] / total[1])


if __name__ == "__main__":
    main()
