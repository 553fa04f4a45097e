"""The loss after a training in which one of the nine places computes in bf16, against plain SGD in fp32.

The features are random signs, which bf16 holds exactly: so `data` and `gram_input` cost nothing here, and
each difference comes from the training itself. The targets of the linear loss have little noise, so margins
are far larger than residuals, and an error in the margins counts.

The poisson loss may be near 0, so that relative differences of it mean nothing. What is compared is the loss
above the least one that any margins reach: half the mean deviance (McCullagh and Nelder, Generalized Linear
Models, 1989, section 2.3). For the other losses this is the loss itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from convoy_workloads.comm.collectives import Collectives
from convoy_workloads.engines.casgd.data import batch, synth
from convoy_workloads.optim.casgd import CASGD, CASGDOptions
from convoy_workloads.optim.losses import LossName
from convoy_workloads.optim.places import PLACES
from convoy_workloads.optim.precision import FP32, MIXED, Precision

TOLERANCE = 0.005
"""Largest relative difference of the loss that counts as equal; the publication's."""
RATES: Mapping[LossName, float] = {"logistic": 0.1, "linear": 0.1, "poisson": 0.01}
ROWS, COLUMNS, BATCH, ITERATIONS, S = 2048, 64, 16, 512, 64


def final_loss(loss: LossName, precision: Precision, s: int, seed: int = 0) -> float:
    """Return half the mean deviance of all rows after a training of one rank."""
    problem = synth(loss, ROWS, COLUMNS, seed, signs=True)
    options = CASGDOptions(loss=loss, lr=RATES[loss], batch=BATCH, s=s, precision=precision)
    alone = Collectives(lambda tensor: tensor)
    optimizer = CASGD(problem.features, problem.targets, options, collectives=alone)
    for iteration in range(ITERATIONS):
        optimizer.step(batch(seed, iteration, ROWS, BATCH))
    return optimizer.loss() - least_loss(loss, problem.targets)


def least_loss(loss: LossName, targets: Tensor) -> float:
    """Return the mean loss of the best possible margins, one for each target."""
    if loss != "poisson":
        return 0.0  # A margin fits its target exactly, or as closely as one likes.
    return float((targets - torch.xlogy(targets, targets)).mean())


def variants() -> dict[str, Precision]:
    """Return CA-SGD in fp32, the publication's recipe, and each place in bf16 alone."""
    single = {place: replace(FP32, **{place: torch.bfloat16}) for place in PLACES}
    return {"fp32": FP32, "mixed": MIXED, **single}


def deviations(loss: LossName, seed: int) -> dict[str, float]:
    """Return the relative difference of each variant's loss from that of SGD in fp32."""
    expected = final_loss(loss, FP32, 1, seed)
    found = {name: final_loss(loss, precision, S, seed) for name, precision in variants().items()}
    return {name: value / expected - 1 for name, value in found.items()}
