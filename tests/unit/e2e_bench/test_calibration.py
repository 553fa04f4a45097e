"""Tests that the calibration of Experiments finds a wrong analysis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from e2e.bench.experiments import calibration
from e2e.bench.experiments.calibration import Limit, least, most

from convoy_workloads.bench.figures import Figures


def met(measure: Callable[[Figures, np.random.Generator], None], name: str) -> bool:
    """Return True if the row whose name contains `name` meets its target."""
    found = Figures()
    measure(found, np.random.default_rng(1))
    row = next(one for one in found.rows() if name in one["metric"])
    return bool(row["met"])


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "REPEATS", 200)
    monkeypatch.setattr(calibration, "FEW_REPEATS", 8)


def test_the_family_is_wrong_without_holms_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    assert met(calibration._family, "independent")
    monkeypatch.setattr(calibration, "holm", list)
    assert not met(calibration._family, "independent")


@pytest.mark.parametrize(
    ("hits", "limit", "meets"),
    [
        (13, most(0.05), True),
        (25, most(0.05), False),
        (13, most(0.05, exact=True), False),
        (190, least(0.95), True),
        (170, least(0.95), False),
    ],
)
def test_a_limit_leaves_room_for_the_error_of_the_measurement(hits: int, limit: Limit, meets: bool) -> None:
    found = Figures()
    calibration._add_rate(found, "x", hits, 200, limit)
    assert found.row("x")["met"] is meets


def test_an_announced_effect_that_is_too_small_is_found_too_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(found: Figures, random: np.random.Generator) -> None:
        calibration._power(found, 10, 1, random)

    monkeypatch.setattr(calibration, "standardised_minimum_effect", lambda *_, **__: 0.6)
    assert not met(measure, ": share found")


def test_controls_are_measured_with_the_whole_analysis() -> None:
    assert met(calibration._controls, "an outcome that must be equal differs")
