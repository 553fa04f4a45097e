"""Residuals of compute: the logarithm of each rank's time divided by its expected time in one window. A
residual of 0.1 means about 10 % longer.

Three models give the expected time. The detector uses the model with the least noise so far.

- peers: the median of the other ranks of the same stage and class of hardware
- cells: the times of the other stages for the same micro-batches
- tokens: the peers, after the effect of a window's tokens on the times is removed
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
"""Minimum number of ranks in a peer group for a verdict on any of them."""
_SPREAD_OF_TOKENS = 0.01
"""Relative spread of tokens below which tokens explain no difference between ranks."""


class Peers(NamedTuple):
    """Residual of each rank, and size of its peer group."""

    residual: Floats
    """Residual of the rank; NaN if the rank did not report or has no peers."""
    known: Ints
    """Number of ranks in the rank's peer group that reported, the rank itself included."""


def against_peers(values: Floats, groups: Ints) -> Peers:
    """Return by rank the logarithm of its positive value divided by the median of the other ranks in its
    group.
    """
    logs = np.log(np.maximum(values, 1e-9))
    ordered = Sorted(logs, groups)
    return Peers(logs - ordered.others(), ordered.counts[groups])


def with_tokens(compute: Floats, tokens: Floats, groups: Ints) -> Peers | None:
    """Return residuals against peers after the effect of tokens is removed. Return None if tokens are
    unknown or all equal.
    """
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
    """Return the residuals by each model that this table permits. `groups`: peer group by rank."""
    plain = against_peers(table.compute, groups)
    found = {Channel.PEERS: plain}
    if cells is not None and table.micro is not None:
        found[Channel.CELLS] = Peers(within_cells(table.micro, cells), plain.known)
    tokens = with_tokens(table.compute, table.tokens, groups)
    if tokens is not None:
        found[Channel.TOKENS] = tokens
    return found


def _slope(x: Floats, y: Floats) -> float:
    """Return a robust slope of y over x through the origin, limited to 0..2: the median of the ratios y /
    x, weighted by |x|.
    """
    order = np.argsort(y / np.where(x == 0, np.inf, x))
    weights = np.abs(x)[order].cumsum()
    at = int(np.searchsorted(weights, weights[-1] / 2))
    best = order[min(at, len(order) - 1)]
    return float(np.clip(y[best] / x[best] if x[best] else 0.0, 0.0, 2.0))
