from __future__ import annotations

import math

import pytest

from convoy_workloads.runtime.progress import RATE_WINDOW, Meter


def test_the_newest_value_of_each_quantity_is_reported() -> None:
    meter = Meter(total=9)
    meter.first_step_ms, meter.checkpoint_seconds = 70, 0.2504
    meter.save_seconds, meter.copy_seconds, meter.restore_seconds = 0.0002, 0.75, 1.5
    meter.observe(1, 0.0, loss=3.0, samples=8, metrics={"held_out_loss": 4.0})
    meter.observe(2, 2.0, loss=2.5, samples=8)
    assert meter.message(77) == {
        "type": "progress", "step": 2, "totalSteps": 9, "timeMs": 77, "samplesPerSecond": 4.0, "loss": 2.5,
        "metrics": {"held_out_loss": {"value": 4.0, "step": 1}}, "firstStepMs": 70, "checkpointMs": 250,
        "saveMs": 1, "copyMs": 750, "restoreMs": 1500,
    }  # fmt: skip


def test_a_quantity_without_a_report_is_omitted() -> None:
    meter = Meter()
    meter.observe(1, 0.0)
    assert meter.message(5) == {"type": "progress", "step": 1, "timeMs": 5}


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_diverged_loss_is_null(loss: float) -> None:
    meter = Meter()
    meter.observe(1, 0.0, loss=loss)
    assert meter.message(0) == {"type": "progress", "step": 1, "timeMs": 0, "diverged": True}
    meter.observe(2, 1.0)
    assert meter.message(0)["diverged"], "it tells no other"
    meter.observe(3, 2.0, loss=0.5)
    assert meter.message(0) == {"type": "progress", "step": 3, "timeMs": 0, "loss": 0.5}


def test_a_log_line_contains_the_known_quantities() -> None:
    meter = Meter()
    meter.observe(1, 0.0)
    assert meter.line() == "step 1"
    meter.total = 9
    meter.observe(2, 1.0, loss=2.5, samples=8, metrics={"held_out_loss": 3.25})
    meter.observe(3, 2.0, samples=8)
    assert meter.line() == "step 3/9  loss 2.5000  held_out_loss 3.25  8.0 samples/s"


def test_the_rate_excludes_reports_older_than_the_window() -> None:
    meter = Meter()
    for second in range(100):
        meter.observe(second, float(second), samples=1 if second < 50 else 5)
    assert meter.samples_per_second() == pytest.approx(5.0)
    assert RATE_WINDOW < 50


def test_many_reports_within_the_window_use_bounded_memory() -> None:
    meter = Meter()
    for number in range(20_000):
        meter.observe(number, number / 10_000, samples=2)
    assert meter.samples_per_second() == pytest.approx(20_000, rel=0.01)
