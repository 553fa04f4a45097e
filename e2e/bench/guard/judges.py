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

Judge = Callable[[Table], set[int]]
_LATELY = 8
"""Windows that rules with a median look back on."""


def convoy(state: State, persistent: bool = False) -> Judge:
    """The detector from this state on. `persistent`: only what may lead to action."""

    def judge(table: Table) -> set[int]:
        nonlocal state
        state, report = advance(state, table)
        return {
            rank
            for finding in report.findings
            for rank in finding.ranks
            if finding.persistent or not persistent
        }

    return judge


def without_curve(layout: Layout) -> State:
    """Ablation: ranks are held against their peers alone."""
    state = initial_state(layout)
    return replace(state, setting=replace(state.setting, cells=None))


def without_strata(layout: Layout) -> State:
    """Ablation: all ranks are peers."""
    state = without_curve(layout)
    return replace(state, setting=replace(state.setting, peers=np.zeros(layout.size, dtype=np.int64)))


def _lately(rule: Callable[[Floats], np.ndarray], windows: int) -> Judge:
    """A rule on the medians of each rank's last compute times, as far as it was heard."""
    past: list[Floats] = []

    def judge(table: Table) -> set[int]:
        past.append(table.compute)
        del past[:-windows]
        heard = ~np.isnan(np.stack(past)).all(axis=0)
        times = np.nanmedian(np.stack(past)[:, heard], axis=0)
        return set(np.nonzero(heard)[0][rule(times)].tolist()) if len(times) else set()

    return judge


def nvrx() -> Judge:
    """NVIDIA Resiliency Extension: the quickest rank's median to one's own is below 0.75."""
    return _lately(lambda times: times.min() / times < 0.75, _LATELY)


def dlrover() -> Judge:
    """DLRover's node check: more than twice the median."""
    return _lately(lambda times: times > 2 * np.median(times), _LATELY)


def constant() -> Judge:
    """A plain baseline of no one's: a fixed margin of 10 % beyond the median."""
    return _lately(lambda times: times > 1.1 * np.median(times), _LATELY)


def z_score() -> Judge:
    """A plain baseline of no one's: more than three standard deviations from the mean, in one window."""
    return _lately(lambda times: (times - times.mean()) / times.std() > 3, 1)


OTHERS: dict[str, Callable[[], Judge]] = {
    "min-reference 0.75": nvrx,
    "2 x median": dlrover,
    "10 % margin": constant,
    "z > 3": z_score,
}
