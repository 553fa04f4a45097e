"""Detectors of slow ranks: Convoy's, Convoy's without one of its methods, and rules of other projects.

A detector is called with the telemetry table of one step at a time. It returns the ranks that it accuses
after this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.state import State, initial_state
from convoy_controllers.guard.telemetry import Floats, Layout, Table

Detector = Callable[[Table], set[int]]
_RECENT_WINDOWS = 8
"""Number of latest windows over which a rule takes the median."""


def convoy(state: State, persistent: bool = False) -> Detector:
    """Return Convoy's detector, which starts in the state `state`.

    With `persistent`, it accuses only on persistent findings. Only those may lead to action.
    """

    def detector(table: Table) -> set[int]:
        nonlocal state
        state, report = advance(state, table)
        return {
            rank
            for finding in report.findings
            for rank in finding.ranks
            if finding.persistent or not persistent
        }

    return detector


def without_curve(layout: Layout) -> State:
    """Return the first state of a detector that compares ranks only within their own group of peers, not
    across pipeline stages.
    """
    state = initial_state(layout)
    return replace(state, setting=replace(state.setting, cells=None))


def without_strata(layout: Layout) -> State:
    """Return the first state of a detector that compares every rank with all other ranks."""
    state = without_curve(layout)
    return replace(state, setting=replace(state.setting, peers=np.zeros(layout.size, dtype=np.int64)))


def _on_recent_medians(rule: Callable[[Floats], np.ndarray], windows: int) -> Detector:
    """Return a detector that applies a rule to each rank's median compute time over the last `windows`
    windows.

    Ranks that reported nothing in these windows are left out.
    """
    recent: list[Floats] = []

    def detector(table: Table) -> set[int]:
        recent.append(table.compute)
        del recent[:-windows]
        reported = ~np.isnan(np.stack(recent)).all(axis=0)
        times = np.nanmedian(np.stack(recent)[:, reported], axis=0)
        return set(np.nonzero(reported)[0][rule(times)].tolist()) if len(times) else set()

    return detector


def nvrx() -> Detector:
    """Return the rule of NVIDIA's Resiliency Extension.

    It compares median compute times. It accuses a rank if the fastest rank's median is below 0.75 of the
    accused rank's median.
    """
    return _on_recent_medians(lambda times: times.min() / times < 0.75, _RECENT_WINDOWS)


def dlrover() -> Detector:
    """Return the rule of DLRover's node check. It accuses a rank whose median compute time is above twice
    the median of all ranks.
    """
    return _on_recent_medians(lambda times: times > 2 * np.median(times), _RECENT_WINDOWS)


def constant() -> Detector:
    """Return a simple baseline that no project uses.

    It accuses a rank whose median compute time is more than 10 % above the median of all ranks.
    """
    return _on_recent_medians(lambda times: times > 1.1 * np.median(times), _RECENT_WINDOWS)


def z_score() -> Detector:
    """Return a simple baseline that no project uses.

    It accuses a rank if its compute time in the latest window is over three standard deviations above the
    mean of all ranks.
    """
    return _on_recent_medians(lambda times: times - times.mean() > 3 * times.std(), 1)


OTHERS: dict[str, Callable[[], Detector]] = {
    "min-reference 0.75": nvrx,
    "2 x median": dlrover,
    "10 % margin": constant,
    "z > 3": z_score,
}
