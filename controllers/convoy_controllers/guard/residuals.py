"""How much slower than its peers each rank computed in one window, in logarithms: 0.1 is about 10 %.

Three models of what a rank ought to have taken; the caller picks the one that has had the least noise:
peers    the median of the other ranks of its stage and class of hardware (leave one out)
cells    the other stages' times for the same micro-batches
tokens   its peers, with times divided by what the tokens of a window explain
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from convoy_controllers.guard.cells import Cells, within_cells
from convoy_controllers.guard.channels import Channel
from convoy_controllers.guard.robust import Sorted, group_medians
from convoy_controllers.guard.telemetry import Floats, Ints, Table

MODELS = (Channel.PEERS, Channel.CELLS, Channel.TOKENS)
FEWEST = 4
"""Ranks that a group of peers must have, the one in question included, for any of them to be judged."""
_SPREAD_OF_TOKENS = 0.01
"""Tokens that vary less explain nothing."""


class Peers(NamedTuple):
    """By rank."""

    residual: Floats
    """NaN: not reported, or without peers."""
    known: Ints
    """Of its group of peers that were reported, itself included."""


def against_peers(values: Floats, groups: Ints) -> Peers:
    """Logarithm of each positive value to the median of the others of its group."""
    logs = np.log(np.maximum(values, 1e-9))
    ordered = Sorted(logs, groups)
    return Peers(logs - ordered.others(), ordered.counts[groups])


def with_tokens(compute: Floats, tokens: Floats, groups: Ints) -> Peers | None:
    """Against peers, the times divided by what tokens explain; None: unknown, or all alike."""
    known = ~np.isnan(tokens) & ~np.isnan(compute)
    if known.sum() < FEWEST or known.sum() < (~np.isnan(compute)).sum():
        return None
    work = np.log(tokens)
    x = work - group_medians(work, groups)[groups]
    if np.nanstd(x) < _SPREAD_OF_TOKENS:
        return None
    logs = np.log(np.maximum(compute, 1e-9))
    y = logs - group_medians(logs, groups)[groups]
    slope = _slope(x[known], y[known])
    ordered = Sorted(logs - slope * x, groups)
    return Peers(logs - slope * x - ordered.others(), ordered.counts[groups])


def compute_residuals(table: Table, groups: Ints, cells: Cells | None) -> dict[Channel, Peers]:
    """By model, those that this table allows. `groups`: of peers, as the layout numbers them."""
    plain = against_peers(table.compute, groups)
    found = {Channel.PEERS: plain}
    if cells is not None and table.micro is not None:
        found[Channel.CELLS] = Peers(within_cells(table.micro, cells), plain.known)
    tokens = with_tokens(table.compute, table.tokens, groups)
    if tokens is not None:
        found[Channel.TOKENS] = tokens
    return found


def _slope(x: Floats, y: Floats) -> float:
    """Of y over x through the origin, robust: the median of the ratios weighted by |x|; from 0 to 2."""
    order = np.argsort(y / np.where(x == 0, np.inf, x))
    weights = np.abs(x)[order].cumsum()
    at = int(np.searchsorted(weights, weights[-1] / 2))
    best = order[min(at, len(order) - 1)]
    return float(np.clip(y[best] / x[best] if x[best] else 0.0, 0.0, 2.0))
