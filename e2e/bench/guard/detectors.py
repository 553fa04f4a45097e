"""Judges of ranks: Convoy's detector, the same with a part taken out, and our own versions of others' rules.

A judge is given the tables one by one and says which ranks it accuses after each.
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
"""Windows that rules with a median look back on."""


def convoy(state: State, persistent: bool = False) -> Detector:
    """The detector from this state on. `persistent`: only what may lead to action."""

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
    """Ablation: ranks are held against their peers alone."""
    state = initial_state(layout)
    return replace(state, setting=replace(state.setting, cells=None))


def without_strata(layout: Layout) -> State:
    """Ablation: all ranks are peers."""
    state = without_curve(layout)
    return replace(state, setting=replace(state.setting, peers=np.zeros(layout.size, dtype=np.int64)))


def _on_recent_medians(rule: Callable[[Floats], np.ndarray], windows: int) -> Detector:
    """A rule on the medians of each rank's last compute times, as far as it was heard."""
    recent: list[Floats] = []

    def detector(table: Table) -> set[int]:
        recent.append(table.compute)
        del recent[:-windows]
        reported = ~np.isnan(np.stack(recent)).all(axis=0)
        times = np.nanmedian(np.stack(recent)[:, reported], axis=0)
        return set(np.nonzero(reported)[0][rule(times)].tolist()) if len(times) else set()

    return detector


def nvrx() -> Detector:
    """NVIDIA Resiliency Extension: the quickest rank's median to one's own is below 0.75."""
    return _on_recent_medians(lambda times: times.min() / times < 0.75, _RECENT_WINDOWS)


def dlrover() -> Detector:
    """DLRover's node check: more than twice the median."""
    return _on_recent_medians(lambda times: times > 2 * np.median(times), _RECENT_WINDOWS)


def constant() -> Detector:
    """A plain baseline of no one's: a fixed margin of 10 % beyond the median."""
    return _on_recent_medians(lambda times: times > 1.1 * np.median(times), _RECENT_WINDOWS)


def z_score() -> Detector:
    """A plain baseline of no one's: more than three standard deviations from the mean, in one window."""
    return _on_recent_medians(lambda times: (times - times.mean()) / times.std() > 3, 1)


OTHERS: dict[str, Callable[[], Detector]] = {
    "min-reference 0.75": nvrx,
    "2 x median": dlrover,
    "10 % margin": constant,
    "z > 3": z_score,
}
