"""The table of batch sizes: for each bucket, the number of samples of S tokens that go into a batch.

A table obeys two limits: memory, B S <= memory_tokens, and compute, cost(B, S) <= compute. Rules:

- `equal_tokens`: the memory limit alone, as in usual bucketed training.
- `paper`: the cost is B S^p with a fitted exponent p.
- `measured`: the cost is the fitted time of a step, t = B (a S + q S^2) + c.

A batch has at least one sample, also if that exceeds the compute limit. Longer samples never get larger
batches than shorter ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from convoy_workloads.packing.step_cost import (
    CostModel,
    FitError,
    LinearQuadratic,
    PowerLaw,
    Timing,
    fit_linear_quadratic,
    fit_power_law,
)

Rule = Literal["equal_tokens", "paper", "measured"]


class BucketError(ValueError):
    """Raised if no table satisfies the limits. The message names the option."""


@dataclass(frozen=True, slots=True)
class BucketTable:
    """The batch size of each bucket. The version grows with each change."""

    version: int
    sizes: Mapping[int, int]
    """Samples of a batch, by the tokens of a sample."""

    def numbers(self) -> list[int]:
        """Return the version and the sizes in the order of the buckets, to send them to other ranks."""
        return [self.version, *(self.sizes[one] for one in sorted(self.sizes))]

    @staticmethod
    def from_numbers(numbers: Sequence[int], buckets: Iterable[int]) -> BucketTable:
        """Return the table that another rank has sent."""
        return BucketTable(numbers[0], dict(zip(sorted(buckets), numbers[1:], strict=True)))


def make_table(
    buckets: Iterable[int],
    memory_tokens: int,
    model: CostModel | None = None,
    compute: float | None = None,
    version: int = 0,
) -> BucketTable:
    """Return the largest batches within the limits.

    `model` and `compute`: the cost of a batch, and its limit; None for the memory limit alone. Without
    `compute`, the limit is the cost of one sample of the longest bucket: then no bucket's step takes longer
    than the step that cannot be made shorter.

    Raises BucketError if the longest bucket exceeds the memory limit, or a limit is not positive.
    """
    listed = sorted(set(buckets))
    if not listed or listed[0] < 1:
        raise BucketError(f"buckets: {listed} must have sizes of at least 1 token")
    if listed[-1] > memory_tokens:
        raise BucketError(
            f"memory_tokens: no batch fits a sample of {listed[-1]} tokens: {memory_tokens} is too small"
        )
    if compute is not None and compute <= 0:
        raise BucketError(f"compute: {compute} is not positive")
    limit = compute
    if model is not None and limit is None:
        limit = model.seconds(1, listed[-1])
    sizes, most = {}, memory_tokens
    for tokens in listed:
        size = memory_tokens // tokens
        if model is not None and limit is not None:
            size = _largest(model, tokens, limit, size)
        most = sizes[tokens] = max(1, min(size, most))
    return BucketTable(version, sizes)


def _largest(model: CostModel, tokens: int, limit: float, most: int) -> int:
    """Return the largest batch, up to `most`, whose cost is within the limit; 0 if there is none. The cost
    grows with the batch.
    """
    low, high = 0, most
    tolerance = 1e-9 * limit
    while low < high:
        middle = (low + high + 1) // 2
        if model.seconds(middle, tokens) <= limit + tolerance:
            low = middle
        else:
            high = middle - 1
    return low


def fit_model(rule: Rule, timings: Sequence[Timing], exponent: float | None = None) -> CostModel | None:
    """Return the cost model of a rule; None for `equal_tokens`, or if there are too few timings.

    `exponent`: p of the paper's rule, if it is not fitted.
    """
    if rule == "equal_tokens":
        return None
    if rule == "paper" and exponent is not None:
        return PowerLaw(1.0, exponent)
    try:
        return fit_power_law(timings) if rule == "paper" else fit_linear_quadratic(timings)
    except FitError:
        return None


def exponent_of(model: CostModel | None, tokens: int) -> float:
    """Return the exponent of a model around samples of `tokens` tokens; 1 without a model."""
    if isinstance(model, PowerLaw):
        return model.exponent
    return model.local_exponent(tokens) if isinstance(model, LinearQuadratic) else 1.0
