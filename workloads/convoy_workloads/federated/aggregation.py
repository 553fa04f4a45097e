"""Rules by which a server makes one adapter of its clients' adapters of different ranks.

| rule | a dimension that a client lacks |
|---|---|
| segment | does not count: the mean of a segment is over the clients that have it |
| segment-product | does not count; the mean of a segment is over the products B A of its dimensions |
| zeropad | counts as zero |
| replicate | counts as that of the client with the largest rank and most samples |
| truncate | all clients are cut to the smallest rank |
| product | does not matter: the mean is over the products B A, and an SVD splits it again |
| fedavg | is an error: all clients must have the same rank |

Clients weigh as many as their samples. They are added in the order of their names, so the order in which
messages come does not change any bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from convoy_workloads.federated.levels import Factors, Levels
from convoy_workloads.federated.update import Update

Rule = Literal["segment", "segment-product", "zeropad", "replicate", "truncate", "product", "fedavg"]
_Made = dict[str, tuple[Tensor, Tensor]]


def aggregate(rule: Rule, levels: Levels, before: Factors, updates: Sequence[Update]) -> _Made:
    """Return the server's adapters after a round. `before`: those of the last round, with the largest rank.

    Dimensions that no client has trained stay as they were. Raises ValueError for `fedavg` of different
    ranks.
    """
    if not updates:
        return {name: (a.clone(), b.clone()) for name, (a, b) in before.items()}
    ordered = sorted(updates, key=lambda update: update.client)
    return _RULES[rule](levels, before, ordered)


def contributors(levels: Levels, updates: Sequence[Update]) -> dict[int, int]:
    """Return how many clients have each segment, by the rank at its end."""
    return {rank: sum(update.rank >= rank for update in updates) for rank in levels.ranks}


def _segments(levels: Levels, before: Factors, updates: Sequence[Update]) -> _Made:
    made = {name: (a.clone(), b.clone()) for name, (a, b) in before.items()}
    for start, end in levels.segments():
        having = [update for update in updates if update.rank >= end]
        if not having:
            continue
        shares = _shares(having)
        for name, (a, b) in made.items():
            a[start:end] = _mean(shares, [one.factors[name][0][start:end] for one in having])
            b[:, start:end] = _mean(shares, [one.factors[name][1][:, start:end] for one in having])
    return made


def _segment_products(levels: Levels, before: Factors, updates: Sequence[Update]) -> _Made:
    made = {name: (a.clone(), b.clone()) for name, (a, b) in before.items()}
    for start, end in levels.segments():
        having = [update for update in updates if update.rank >= end]
        if not having:
            continue
        shares = _shares(having)
        for name, (a, b) in made.items():
            pairs = [update.factors[name] for update in having]
            whole = _mean(
                shares, [two[:, start:end].double() @ one[start:end].double() for one, two in pairs]
            )
            a[start:end], b[:, start:end] = _split(whole, a[start:end], b[:, start:end])
    return made


def _zeropad(levels: Levels, before: Factors, updates: Sequence[Update]) -> _Made:
    shares, made = _shares(updates), {}
    for name, (a, b) in before.items():
        padded = [_padded(update, name, torch.zeros_like(a), torch.zeros_like(b)) for update in updates]
        made[name] = _mean(shares, [one for one, _ in padded]), _mean(shares, [one for _, one in padded])
    return made


def _replicate(levels: Levels, before: Factors, updates: Sequence[Update]) -> _Made:
    shares, made = _shares(updates), {}
    best = max(updates, key=lambda update: (update.rank, update.samples))
    for name, (a, b) in before.items():
        filling = _padded(best, name, a.clone(), b.clone())
        padded = [_padded(update, name, *(one.clone() for one in filling)) for update in updates]
        made[name] = _mean(shares, [one for one, _ in padded]), _mean(shares, [one for _, one in padded])
    return made


def _truncate(levels: Levels, before: Factors, updates: Sequence[Update]) -> _Made:
    least = levels.ranks[0]
    cut = [
        Update(
            update.client,
            update.round,
            least,
            update.samples,
            {name: (a[:least], b[:, :least]) for name, (a, b) in update.factors.items()},
        )
        for update in updates
    ]
    return _segments(levels, before, cut)


def _product(levels: Levels, before: Factors, updates: Sequence[Update]) -> _Made:
    shares, made = _shares(updates), {}
    for name, (a, b) in before.items():
        pairs = [update.factors[name] for update in updates]
        whole = _mean(shares, [other.double() @ one.double() for one, other in pairs])
        made[name] = _split(whole, a, b)
    return made


def _fedavg(levels: Levels, before: Factors, updates: Sequence[Update]) -> _Made:
    if len({update.rank for update in updates} | {levels.largest}) > 1:
        raise ValueError("rule: fedavg needs clients that all have the largest rank")
    shares = _shares(updates)
    return {
        name: (
            _mean(shares, [update.factors[name][0] for update in updates]),
            _mean(shares, [update.factors[name][1] for update in updates]),
        )
        for name in before
    }


def _shares(updates: Sequence[Update]) -> list[float]:
    total = sum(update.samples for update in updates)
    return [update.samples / total for update in updates]


def _mean(shares: Sequence[float], tensors: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for share, tensor in zip(shares, tensors, strict=True):
        total += share * tensor
    return total


def _split(product: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best factors of a product, with the shapes of `a` and `b`."""
    left, values, right = torch.linalg.svd(product, full_matrices=False)
    kept = min(len(a), len(values))
    root = values[:kept].sqrt()
    new_a, new_b = torch.zeros_like(a), torch.zeros_like(b)
    new_a[:kept] = (root[:, None] * right[:kept]).to(a.dtype)
    new_b[:, :kept] = (left[:, :kept] * root).to(b.dtype)
    return new_a, new_b


def _padded(update: Update, name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Write a client's dimensions over the first ones of `a` and `b`."""
    own_a, own_b = update.factors[name]
    a[: update.rank], b[:, : update.rank] = own_a, own_b
    return a, b


_RULES: Mapping[Rule, Callable[[Levels, Factors, Sequence[Update]], _Made]] = {
    "segment": _segments,
    "segment-product": _segment_products,
    "zeropad": _zeropad,
    "replicate": _replicate,
    "truncate": _truncate,
    "product": _product,
    "fedavg": _fedavg,
}
RULES = tuple(_RULES)
