"""The rows of gpt's mixture of experts in docs/bench/engines_training.json: how skewed the routing is, with
the penalty and without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.gpt import data
from convoy_workloads.engines.gpt.engine import HELD_OUT_SEED, penalty
from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.gpt.params import Params
from convoy_workloads.engines.gpt.schedule import learning_rate

SIZES = (16, 64)
"""Numbers of experts."""
WEIGHTS = {"with the penalty": 0.01, "without the penalty": 0.0}
SEEDS = 5
HELD_OUT = 32
"""Number of held-out batches."""
IDLE = 0.1
"""An expert with less than this share of the mean tokens counts as idle."""


@dataclass(frozen=True)
class Routing:
    """The routing of held-out text after a training, in the worst block."""

    loss: float
    """Mean loss, in nats per byte."""
    busiest: float
    """Tokens of the busiest expert over the mean."""
    idle: int
    """Number of idle experts."""


def figures(steps: int = 200, seeds: int = SEEDS) -> Figures:
    """Train models with each number of experts, with the penalty and without it."""
    found = Figures()
    for seed in range(1, seeds + 1):
        for experts in SIZES:
            for words, weight in WEIGHTS.items():
                _add(found, f"gpt, {experts} experts, {words}", train(_params(experts, weight, seed, steps)))
    return found


def _params(experts: int, weight: float, seed: int, steps: int) -> Params:
    return Params(
        experts=experts, balance_weight=weight, seed=seed, steps=steps, layers=2, width=64, held_out_batches=1
    )


def _add(found: Figures, title: str, routing: Routing) -> None:
    found.add(Metric(f"{title}: tokens of the busiest expert over the mean", "times"), routing.busiest)
    found.add(Metric(f"{title}: experts with less than {IDLE:.0%} of the mean", ""), routing.idle)
    found.add(Metric(f"{title}: held-out loss", "nats"), routing.loss)


def train(params: Params) -> Routing:
    """Train a model on one rank, and return the routing of held-out text."""
    corpus = data.load(int(params.data_megabytes * 1e6))
    torch.manual_seed(params.seed)
    model = GPT(params.context, params.layers, params.width, params.heads, params.experts, params.top_k)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate, betas=(0.9, 0.95))
    for step in range(1, params.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, params)
        inputs, targets = data.batch(corpus.train, params.seed, step, 0, params.batch, params.context)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        (loss + params.balance_weight * penalty(model)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return _measure(model, params, corpus)


@torch.no_grad()
def _measure(model: GPT, params: Params, corpus: data.Corpus) -> Routing:
    total, loads = 0.0, [torch.zeros(params.experts) for _ in model.expert_layers]
    for number in range(HELD_OUT):
        inputs, targets = data.batch(corpus.held_out, HELD_OUT_SEED, number, 0, params.batch, params.context)
        total += float(F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()))
        for layer, load in zip(model.expert_layers, loads, strict=True):
            load.add_(layer.loads)
    shares = [load / load.mean() for load in loads]
    return Routing(
        total / HELD_OUT,
        max(float(share.max()) for share in shares),
        max(int((share < IDLE).sum()) for share in shares),
    )
