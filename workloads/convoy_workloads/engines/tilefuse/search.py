"""Activation-aware scales and clipping for quantised matrices (AWQ; Lin et al., arXiv 2306.00978).

Inputs with large activations need exact weights. So before rounding, the weights of input k are multiplied by
s_k = a_k ** alpha, with a_k the mean magnitude of the input, and the input is divided by s_k. The division
goes into the norm or into the rows of the matrix before, where that is exact (`structure.py`). A grid over
alpha finds the least error of the matrix's outputs on calibration text. alpha = 0 is rounding to nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from convoy_workloads.engines.lm.transformer import Transformer
from convoy_workloads.engines.tilefuse import sequences
from convoy_workloads.engines.tilefuse.groups import grid, rounded, split
from convoy_workloads.engines.tilefuse.structure import Fold, Matrix, NormFold, RowFold, Structure

Progress = Callable[[str], None]
"""Receives the name of the matrix that is quantised, at least once a second."""
ALPHAS = tuple(step / 20 for step in range(20))
SHRINKS = tuple(1 - step / 50 for step in range(26))
"""Shares of a group's range that the search for clipping tries."""
ROWS = 512
"""Maximum number of rows on which errors are measured."""


@dataclass(frozen=True)
class Outcome:
    """The search's result for one matrix. Errors are the mean square error of the outputs on the calibration
    text, as a share of their mean square.
    """

    key: str
    alpha: float
    before: float
    """Error of rounding to nearest."""
    after: float


@dataclass(frozen=True)
class Settings:
    """The settings of the search."""

    bits: int
    group_size: int
    clip: bool = False


@torch.no_grad()
def search(
    model: Transformer, found: Structure, tokens_BT: Tensor, settings: Settings, progress: Progress
) -> tuple[list[Outcome], dict[str, Tensor]]:
    """Scale the weights of a model in float32, in place. Its outputs stay the same, and its codes become
    better. Return the outcome of each matrix, and the shares of the ranges by matrix if `settings.clip`.
    """
    outcomes, shrinks = [], dict[str, Tensor]()
    x = sequences.embed(model, tokens_BT)
    for number, matrices in enumerate(found.layers):
        with _Inputs(matrices) as inputs:
            after = sequences.layer(model, number, x)
        for matrix in matrices:
            rows = inputs.rows[matrix.key]
            outcome, scales = _alpha(matrix, rows, inputs.means[matrix.key], settings, progress)
            if settings.clip:
                shrinks[matrix.key] = _shrink(_weight(matrix), rows / scales, settings)
            outcomes.append(outcome)
        x = after
    return outcomes, shrinks


def _alpha(
    matrix: Matrix, x: Tensor, means: Tensor, settings: Settings, progress: Progress
) -> tuple[Outcome, Tensor]:
    """Find the best scales of a matrix's inputs, and fold them. Return them with the outcome."""
    weight = _weight(matrix)
    exact = x @ weight.T
    power = float(exact.square().mean()) or 1.0
    ones = torch.ones_like(means)

    def error(scales: Tensor) -> float:
        progress(matrix.key)
        coded = rounded(weight * scales, settings.bits, settings.group_size) / scales
        return float((x @ coded.T - exact).square().mean()) / power

    before = error(ones)
    best = Outcome(matrix.key, 0.0, before, before)
    chosen = ones
    if matrix.fold is not None:
        magnitudes = _shared(matrix.fold, means).clamp(min=1e-4)
        for alpha in ALPHAS[1:]:
            scales = magnitudes**alpha
            scales = scales / (scales.max() * scales.min()).sqrt()
            if (found := error(scales)) < best.after:
                best, chosen = Outcome(matrix.key, alpha, before, found), scales
        _apply(matrix, chosen)
    return best, chosen


def _shared(fold: Fold, means: Tensor) -> Tensor:
    """Return magnitudes that are equal for all inputs that one row makes."""
    if isinstance(fold, NormFold) or fold.copies == 1:
        return means
    by_head = means.view(-1, fold.copies, fold.width)
    return by_head.mean(1, keepdim=True).expand_as(by_head).reshape(-1)


def _apply(matrix: Matrix, scales: Tensor) -> None:
    """Multiply the weights by the scales of their inputs, and divide what makes the inputs."""
    _weight(matrix).mul_(scales)
    fold = matrix.fold
    if isinstance(fold, NormFold):
        for one in fold.norm.parameters():
            one.div_(scales)
    elif isinstance(fold, RowFold):
        own = scales.view(-1, fold.copies, fold.width)[:, 0].reshape(-1)
        rows = slice(fold.first, fold.first + len(own))
        fold.owner.weight[rows].div_(own[:, None])
        if fold.owner.bias is not None:
            fold.owner.bias[rows].div_(own)


def _shrink(weight: Tensor, x: Tensor, settings: Settings) -> Tensor:
    """Return the share of each group's range [N, G, 1] that gives the least error of the group's part of the
    outputs.
    """
    groups = split(weight, settings.group_size)
    by_group = x.view(len(x), -1, settings.group_size)
    gram = torch.einsum("rgi,rgj->gij", by_group, by_group)
    best = torch.full((*groups.shape[:2], 1), torch.inf)
    chosen = torch.ones_like(best)
    for share in SHRINKS:
        found = grid(groups, settings.bits, share)
        difference = found.dequantised(found.round(groups)) - groups
        error = (torch.einsum("ngi,gij->ngj", difference, gram) * difference).sum(-1, keepdim=True)
        better = error < best
        best, chosen = torch.where(better, error, best), torch.where(better, share, chosen)
    return chosen


def _weight(matrix: Matrix) -> Tensor:
    module = matrix.module
    assert isinstance(module, nn.Linear)  # noqa: S101 - the model is not yet quantised
    return module.weight


class _Inputs:
    """Records the inputs of matrices during a forward pass: some rows, and the mean magnitudes over all."""

    def __init__(self, matrices: tuple[Matrix, ...]) -> None:
        self.rows: dict[str, Tensor] = {}
        self.means: dict[str, Tensor] = {}
        self._matrices = matrices
        self._hooks: list[Any] = []

    def __enter__(self) -> _Inputs:
        for matrix in self._matrices:
            self._hooks.append(matrix.module.register_forward_pre_hook(self._recorder(matrix.key)))
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._hooks:
            one.remove()

    def _recorder(self, key: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def record(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0].detach().flatten(0, -2).float()
            step = max(1, len(x) // ROWS)
            self.rows[key] = x[::step][:ROWS].clone()
            self.means[key] = x.abs().mean(0)

        return record
