"""How much slower than its peers each rank computed in one window, in logarithms: 0.1 is about 10 %.

Three models of what a rank ought to have taken; the caller picks the one that has had the least noise:
peers    the median of the other ranks of its stage and class of hardware (leave one out)
cells    also the work in its replica's micro-batches, which all stages share (two-way median polish)
tokens   its peers, with times divided by what the tokens of a window explain
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from convoy_controllers.guard.robust import Sorted, group_medians, others_median
from convoy_controllers.guard.telemetry import Floats, Ints, Layout, Table

MODELS = ("peers", "cells", "tokens")
FEWEST = 4
"""Ranks that a group of peers must have, the one in question included, for any of them to be judged."""
_SWEEPS = 2
_SPREAD_OF_TOKENS = 0.01
"""Tokens that vary less explain nothing."""


class Peers(NamedTuple):
    """By rank."""

    residual: Floats
    """NaN: not heard, or without peers."""
    count: Ints
    """Of its group of peers that were heard, itself included."""


def against_peers(values: Floats, groups: Ints) -> Peers:
    """Logarithm of each positive value to the median of the others of its group."""
    logs = np.log(np.maximum(values, 1e-9))
    ordered = Sorted(logs, groups)
    return Peers(logs - ordered.others(), ordered.counts[groups])


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Ranks in a grid: rows are stages (and the positions within one), columns are replicas."""

    grid: Ints
    """Rows by columns: the rank."""
    stage: Ints
    """By row."""

    @classmethod
    def of(cls, layout: Layout) -> Cells | None:
        """None: one row only, too few replicas, replicas that are not alike, or classes of hardware mixed."""
        if not layout.size or len(np.unique(layout.hardware)) > 1:
            return None
        order = np.lexsort((np.arange(layout.size), layout.stage, layout.replica))
        columns, counts = np.unique(layout.replica, return_counts=True)
        rows = layout.size // len(columns)
        if (counts != rows).any() or rows < 2 or len(columns) < FEWEST:
            return None
        grid = order.reshape(len(columns), rows).T
        stage = layout.stage[grid]
        return cls(grid, stage[:, 0]) if (stage == stage[:, :1]).all() else None

    @property
    def kept(self) -> float:
        """Share of a rank's own slowness that is left in its residual.

        Of two rows each takes half of the other's. The median of more is moved by one of them no further than
        its neighbour lies.
        """
        return 0.5 if len(self.stage) == 2 else 1.0


def within_cells(micro: Floats, cells: Cells) -> Floats:
    """Residual by rank of the times of its micro-batches (NaN: not heard), the replica's work taken out."""
    logs = np.log(micro[cells.grid])
    rows, columns, count = logs.shape
    silent = np.isnan(logs).any(axis=2)
    if silent.any():
        _fill(logs, silent)
    halves = [slice(0, count // 2), slice(count // 2, count)] if count > 1 else [slice(0, 1)]
    middle = np.mean if rows == 2 else np.median
    for _ in range(_SWEEPS):
        for half in halves:
            part = logs[:, :, half].reshape(rows, -1)
            stages = group_medians(np.median(part, axis=1), _numbers(cells.stage))
            logs[:, :, half] -= stages[_numbers(cells.stage)][:, None, None]
        logs -= middle(logs, axis=0)
    residual = np.full(len(micro), np.nan)
    residual[cells.grid] = np.where(silent, np.nan, logs.mean(axis=2) / cells.kept)
    # What is left is centred on the peers' middle, as the other models are.
    groups = np.empty(len(micro), dtype=np.int64)
    groups[cells.grid] = _numbers(cells.stage)[:, None]
    return residual - others_median(residual, groups)


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


def compute_residuals(table: Table, layout: Layout, cells: Cells | None) -> dict[str, Peers]:
    """By model, those that this table allows."""
    groups = layout.peers
    plain = against_peers(table.compute, groups)
    found = {"peers": plain}
    if cells is not None and table.micro is not None:
        found["cells"] = Peers(within_cells(table.micro, cells), plain.count)
    tokens = with_tokens(table.compute, table.tokens, groups)
    if tokens is not None:
        found["tokens"] = tokens
    return found


def _numbers(values: Ints) -> Ints:
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _fill(logs: Floats, silent: np.ndarray) -> None:
    """Silent ranks are given what their row usually takes, so that they pull nobody."""
    for row in np.unique(np.nonzero(silent)[0]):
        heard = logs[row][~silent[row]]
        logs[row][silent[row]] = np.median(heard, axis=0) if len(heard) else 0.0


def _slope(x: Floats, y: Floats) -> float:
    """Of y over x through the origin, robust: the median of the ratios weighted by |x|; from 0 to 2."""
    order = np.argsort(y / np.where(x == 0, np.inf, x))
    weights = np.abs(x)[order].cumsum()
    at = int(np.searchsorted(weights, weights[-1] / 2))
    best = order[min(at, len(order) - 1)]
    return float(np.clip(y[best] / x[best] if x[best] else 0.0, 0.0, 2.0))
