"""Tests of imbalance in jobs of two or three replicas: noise gives no finding, lasting imbalance does."""

from __future__ import annotations

import numpy as np
import pytest

from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.findings import Cause
from convoy_controllers.guard.imbalance import Unevenness
from convoy_controllers.guard.loss import IMBALANCED, Shape
from convoy_controllers.guard.state import initial_state
from convoy_controllers.guard.telemetry import Floats, Layout
from convoy_controllers.testing.shared_machine import disturbances, tables

WINDOWS = 200


def pair(ranks: int = 2) -> Layout:
    return Layout.of([0] * ranks, range(ranks))


def first_costly(disturbance: Floats, longer: Floats) -> int | None:
    """Return the first window whose lasting imbalance is costly; None if no window has any."""
    layout = pair(len(longer))
    shape, slow = Shape.of(layout), np.zeros(layout.size, dtype=np.bool_)
    state = Unevenness.initial(shape)
    for window, row in enumerate(disturbance, start=1):
        state = state.updated(longer * np.exp(row), slow, layout.peers, shape)
        if window % 8 == 0 and state.cost(layout.peers, shape, 1).replicas >= IMBALANCED:
            return window
    return None


@pytest.mark.parametrize("ranks", [2, 3])
def test_noise_of_a_shared_machine_is_no_imbalance(ranks: int) -> None:
    found = [first_costly(disturbances(ranks, WINDOWS, seed), np.ones(ranks)) for seed in range(12)]
    assert found == [None] * 12


def test_lasting_imbalance_is_found_despite_the_noise() -> None:
    found = [first_costly(disturbances(2, WINDOWS, seed), np.array([1.0, 1.6])) for seed in range(12)]
    assert sum(one is not None for one in found) >= 9
    calm = np.random.default_rng(1).normal(0, 0.01, (WINDOWS, 2))
    assert first_costly(calm, np.array([1.0, 1.2])) == 64
    assert first_costly(calm, np.array([1.0, 1.04])) is None


def test_one_long_burst_is_no_imbalance() -> None:
    burst = np.random.default_rng(1).normal(0, 0.01, (WINDOWS, 2))
    burst[100:140, 1] += 0.5
    assert first_costly(burst, np.ones(2)) is None


def test_undisturbed_pair_gets_no_finding_about_the_whole_job() -> None:
    """A restart begins with slow windows, and two ranks share the processors."""
    for seed in range(3):
        state = initial_state(pair())
        for table in tables(disturbances(2, 100, seed), np.ones(2)):
            state, report = advance(state, table)
            assert not {one.cause for one in report.findings} & {Cause.IMBALANCE, Cause.HOST}, table.first
