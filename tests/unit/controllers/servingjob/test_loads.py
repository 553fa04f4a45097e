"""Tests of the load of a pod, which is the input of the autoscaler's metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy_controllers.servingjob import traffic
from convoy_controllers.servingjob.loads import METRICS, Load, load
from convoy_controllers.servingjob.traffic import Latencies, Series, Totals
from convoy_crds.servingjob_scaling import ScalingMetric

START = Totals(1, latency=Latencies((0.1, 1.0), (0, 0, 0)), first_token=Latencies((0.1, 1.0), (0, 0, 0)))
LATER = Totals(
    1,
    queue=3,
    in_flight=2,
    requests=100,
    tokens=400,
    cpu_seconds=5.0,
    latency=Latencies((0.1, 1.0), (0, 100, 0)),
    first_token=Latencies((0.1, 1.0), (100, 0, 0)),
)


def series(*samples: tuple[float, Totals]) -> Series:
    found: Series = ()
    for at, one in samples:
        found = traffic.record(found, one, at)
    return found


def test_rates_and_percentiles_cover_the_time_between_two_reports() -> None:
    seen = load(series((0.0, START), (20.0, LATER)), 22.0)
    assert seen is not None
    assert (seen.age_seconds, seen.window_seconds) == (2.0, 20.0)
    assert (seen.waiting, seen.running) == (3, 2)
    assert (seen.requests_per_second, seen.tokens_per_second, seen.cores) == (5.0, 20.0, 0.25)
    assert seen.p95 == pytest.approx(0.955) and seen.first_token_p95 == pytest.approx(0.095)


def test_a_pod_that_has_not_reported_lately_has_no_load() -> None:
    assert load((), 0.0) is None
    assert load(series((0.0, START)), 15.1) is None


def test_rates_are_unknown_until_two_reports_are_far_enough_apart() -> None:
    seen = load(series((0.0, START), (4.0, LATER)), 4.0)
    assert seen is not None and seen.waiting == 3
    assert seen.requests_per_second is None and seen.cores is None


def test_a_pod_without_requests_has_a_latency_of_0() -> None:
    seen = load(series((0.0, START), (20.0, START)), 20.0)
    assert seen is not None and (seen.p95, seen.first_token_p95) == (0.0, 0.0)


def test_a_pod_whose_requests_have_not_ended_has_no_latency() -> None:
    seen = load(series((0.0, START), (20.0, replace(START, in_flight=1))), 20.0)
    assert seen is not None and seen.p95 is None


def test_a_program_that_does_not_report_its_processor_time_has_no_cores() -> None:
    seen = load(series((0.0, START), (20.0, replace(LATER, cpu_seconds=0.0))), 20.0)
    assert seen is not None and seen.cores is None


def test_every_metric_has_a_figure() -> None:
    assert set(METRICS) == set(ScalingMetric)
    seen = Load(0.0, 60.0, 1, 2, 3.0, 4.0, 5.0, 6.0, 7.0)
    assert [METRICS[one](seen) for one in ScalingMetric] == [1, 2, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (((0.0, START), (20.0, replace(START, in_flight=1))), 0.0),
        (((0.0, START), (20.0, replace(START, queue=1))), 0.0),
        (((0.0, START), (12.0, replace(START, requests=5)), (30.0, replace(START, requests=5))), 20.0),
        (((0.0, START), (12.0, replace(START, in_flight=1)), (30.0, START)), 20.0),
        (((0.0, replace(START, queue=1)), (30.0, START)), 32.0),
        (((0.0, START), (30.0, START)), None),
        (((0.0, START),), None),
    ],
    ids=["running", "waiting", "ended", "was running", "was waiting", "none", "one report"],
)
def test_the_last_request_is_known(samples: tuple[tuple[float, Totals], ...], expected: float | None) -> None:
    seen = load(series(*samples), 32.0 if len(samples) > 1 else 1.0)
    assert seen is not None and seen.quiet_seconds == expected
