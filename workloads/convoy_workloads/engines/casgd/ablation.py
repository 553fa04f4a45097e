"""The loss after a training in which one of the nine places computes in bf16, against plain SGD in fp32.

The ranks train on what the precision stores. The loss is that of the trained weights on the true features and
targets in fp64, so the rounding of stored data counts only as far as it changes the weights.

The features are normal. A second table has random signs, which bf16 holds exactly, as do sums of their
products: so each difference comes from the training itself. With targets of little noise, margins are far
larger than residuals there, and an error in the margins counts.

The poisson loss may be near 0, so that relative differences of it mean nothing. What is compared is the loss
above the least one that any margins reach: half the mean deviance (McCullagh and Nelder, Generalized Linear
Models, 1989, section 2.3). For the other losses this is the loss itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from convoy_workloads.comm.collectives import Collectives, of_group
from convoy_workloads.engines.casgd.data import batch, columns_of, synth
from convoy_workloads.optim.casgd import CASGD, CASGDOptions
from convoy_workloads.optim.losses import LOSSES, LossName
from convoy_workloads.optim.places import PLACES
from convoy_workloads.optim.precision import FP32, MIXED, Precision

TOLERANCE = 0.005
"""Largest relative difference of the loss that counts as equal; the publication's."""
RATES: Mapping[LossName, float] = {"logistic": 0.1, "linear": 0.1, "poisson": 0.01}
ROWS, COLUMNS, BATCH, ITERATIONS, S = 2048, 64, 16, 512, 64


def final_loss(
    loss: LossName,
    precision: Precision,
    s: int,
    seed: int = 0,
    signs: bool = False,
    collectives: Collectives | None = None,
) -> float:
    """Train on the ranks of `collectives`, by default on one rank. Return half the mean deviance over all
    rows.
    """
    collectives = collectives or Collectives(lambda tensor: tensor)
    problem = synth(loss, ROWS, COLUMNS, seed, signs)
    own = columns_of(collectives.rank, collectives.world, problem.features.shape[1], "contiguous")
    options = CASGDOptions(loss=loss, lr=RATES[loss], batch=BATCH, s=s, precision=precision)
    optimizer = CASGD(problem.features[:, own], problem.targets, options, collectives=collectives)
    for iteration in range(ITERATIONS):
        optimizer.step(batch(seed, iteration, ROWS, BATCH))
    margins = problem.features[:, own] @ optimizer.weights.double()
    collectives.all_reduce(margins)
    return float(LOSSES[loss].value(margins, problem.targets).mean()) - least_loss(loss, problem.targets)


def least_loss(loss: LossName, targets: Tensor) -> float:
    """Return the mean loss of the best possible margins, one for each target."""
    if loss != "poisson":
        return 0.0  # A margin fits its target exactly, or as closely as one likes.
    return float((targets - torch.xlogy(targets, targets)).mean())


def variants() -> dict[str, Precision]:
    """Return CA-SGD in fp32, the publication's recipe, and each place in bf16 alone."""
    single = {place: replace(FP32, **{place: torch.bfloat16}) for place in PLACES}
    return {"fp32": FP32, "mixed": MIXED, **single}


def table(
    loss: LossName, seeds: int, signs: bool = False, names: Sequence[str] | None = None
) -> list[dict[str, float]]:
    """Return for each seed the relative difference of each variant's loss from that of SGD in fp32, on the
    ranks of the default process group. All ranks must call this. `names`: variants, by default all.
    """
    chosen = {name: one for name, one in variants().items() if names is None or name in names}
    found = []
    for seed in range(seeds):
        expected = final_loss(loss, FP32, 1, seed, signs, of_group())
        losses = {name: final_loss(loss, one, S, seed, signs, of_group()) for name, one in chosen.items()}
        found.append({name: value / expected - 1 for name, value in losses.items()})
    return found
