"""Losses of generalized linear models. The margin of a row is the product of its features and the weights.

| loss | value | derivative | targets |
|---|---|---|---|
| logistic | log(1 + exp(m)) - y m | sigmoid(m) - y | 0 or 1 |
| linear | (m - y)^2 / 2 | m - y | any number |
| poisson | exp(m) - y m | exp(m) - y | 0 or more |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

LossName = Literal["logistic", "linear", "poisson"]


@dataclass(frozen=True)
class Loss:
    """A loss as a function of margins and targets."""

    value: Callable[[Tensor, Tensor], Tensor]
    derivative: Callable[[Tensor, Tensor], Tensor]
    accepts: Callable[[Tensor], Tensor]
    """A function that returns for each target whether the loss is defined for it."""
    targets: str
    """The targets for which the loss is defined, in words."""


LOSSES: Mapping[str, Loss] = {
    "logistic": Loss(
        value=lambda margins, targets: F.softplus(margins) - targets * margins,
        derivative=lambda margins, targets: torch.sigmoid(margins) - targets,
        accepts=lambda targets: (targets == 0) | (targets == 1),
        targets="0 or 1",
    ),
    "linear": Loss(
        value=lambda margins, targets: 0.5 * (margins - targets).square(),
        derivative=lambda margins, targets: margins - targets,
        accepts=torch.isfinite,
        targets="finite numbers",
    ),
    "poisson": Loss(
        value=lambda margins, targets: torch.exp(margins) - targets * margins,
        derivative=lambda margins, targets: torch.exp(margins) - targets,
        accepts=lambda targets: torch.isfinite(targets) & (targets >= 0),
        targets="numbers that are 0 or more",
    ),
}
