"""Tests of the figures of a ServingJob's requests, from the pods' totals to the status."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controllers.servingjob.servers import Servers

from convoy_controllers.commands import Scrape
from convoy_controllers.resources import NETWORK_POLICIES
from convoy_controllers.servingjob import children, traffic
from convoy_controllers.servingjob.traffic import Figures, Latencies, Series, Totals
from convoy_controllers.workers.network import NetworkSettings
from convoy_crds.servingjob_status import Traffic

BOUNDS = tuple(0.001 * 1.25**power for power in range(52))


def histogram(seconds: Iterable[float]) -> Latencies:
    counts = [0] * (len(BOUNDS) + 1)
    for one in seconds:
        counts[bisect_left(BOUNDS, one)] += 1
    return Latencies(BOUNDS, tuple(counts))


def totals(requests: int = 0, seconds: float = 0.1, **more: int) -> Totals:
    latency = histogram([seconds] * requests)
    return Totals(1, requests=requests, latency=latency, first_token=latency, **more)


def series(*samples: tuple[float, Totals]) -> Series:
    found: Series = ()
    for at, one in samples:
        found = traffic.record(found, one, at)
    return found


def test_rates_and_percentiles_cover_the_window() -> None:
    found = series((0.0, totals(0)), (10.0, totals(50)), (20.0, totals(100, queue=3, in_flight=2)))
    seen = traffic.figures([found], 20.0)
    assert seen is not None
    assert seen.requests_per_second == pytest.approx(5.0)
    assert seen.p95 == pytest.approx(0.1, rel=0.25)
    assert (seen.queue, seen.in_flight) == (3, 2)


def test_the_figures_of_several_pods_add_up() -> None:
    one = series((0.0, totals(0)), (10.0, totals(100, 0.1, queue=1)))
    slow = series((0.0, totals(0)), (10.0, totals(100, 2.0, queue=2)))
    seen = traffic.figures([one, slow], 10.0)
    assert seen is not None and seen.queue == 3
    assert seen.requests_per_second == pytest.approx(20.0)
    assert seen.p95 == pytest.approx(2.0, rel=0.25)


def test_old_requests_leave_the_window() -> None:
    found = series(*((10.0 * step, totals(min(100, 10 * step))) for step in range(30)))
    assert len(found) <= traffic.WINDOW_SECONDS / traffic.SPACING_SECONDS + 2
    assert not traffic.busy(found)
    seen = traffic.figures([found], 290.0)
    assert seen is not None and (seen.requests_per_second, seen.p95) == (0.0, None)


def test_a_restarted_rank_starts_a_series() -> None:
    found = series((0.0, totals(100)), (10.0, totals(200)), (20.0, totals(3)))
    assert len(found) == 1
    seen = traffic.figures([found], 20.0)
    assert seen is not None and seen.requests_per_second is None
    assert len(traffic.record(found, replace(totals(300), incarnation=2), 30.0)) == 1


def test_a_silent_pod_does_not_count() -> None:
    found = series((0.0, totals(0)), (10.0, totals(100)))
    assert traffic.figures([found], 10.0 + traffic.STALE_SECONDS) is not None
    assert traffic.figures([found], 10.1 + traffic.STALE_SECONDS) is None
    assert traffic.figures([], 0.0) is None


def test_a_pod_with_waiting_requests_is_busy() -> None:
    assert traffic.busy(
        series(
            (0.0, totals(5, queue=1)),
        )
    )
    assert not traffic.busy(
        series(
            (0.0, totals(5)),
        )
    )


@settings(max_examples=30)
@given(st.lists(st.floats(0.002, 80.0), min_size=1, max_size=60))
def test_a_percentile_is_within_the_width_of_a_bucket(seconds: list[float]) -> None:
    wanted = sorted(seconds)[max(0, -(-95 * len(seconds) // 100) - 1)]
    found = traffic.quantile([histogram(seconds)])
    assert found is not None and wanted / 1.2501 <= found <= wanted * 1.2501


def test_a_percentile_above_all_bounds_is_the_highest_bound() -> None:
    assert traffic.quantile([Latencies((1.0, 2.0), (0, 0, 5))]) == 2.0
    assert traffic.quantile([Latencies()]) is None


@pytest.mark.parametrize(
    ("value", "stored", "shown"),
    [(0.1234, None, 120.0), (0.125, 120.0, 120.0), (0.14, 120.0, 140.0), (None, 120.0, None)],
)
def test_jitter_does_not_change_the_status(
    value: float | None, stored: float | None, shown: float | None
) -> None:
    assert traffic.shown(Figures(p95=value), Traffic(p95_ms=stored)).p95_ms == shown


@pytest.mark.parametrize(
    ("value", "stored", "shown"), [(0, 1, 0), (1, 0, 1), (104, 100, 100), (120, 100, 120)]
)
def test_small_queues_are_exact(value: int, stored: int, shown: int) -> None:
    assert traffic.shown(Figures(queue=value), Traffic(queue=stored)).queue == shown


def test_the_status_has_the_figures_and_no_write_at_rest() -> None:
    servers = Servers(slo={"p95Ms": 200}).settle()
    assert servers.job.status.traffic is None
    assert servers.condition["SLOMet"] == ("Unknown", "ObjectivesUnknown")
    servers.traffic = Figures(
        p95=0.15,
        ttft=0.05,
        requests_per_second=12.0,
        errors_per_second=0.5,
        tokens_per_second=123.0,
        queue=2,
        in_flight=3,
    )
    servers.settle()
    stored = servers.job.status.traffic
    assert stored == Traffic(
        p95_ms=150.0,
        ttft_ms=50.0,
        requests_per_second=12.0,
        errors_per_second=0.5,
        refused_per_second=0.0,
        tokens_per_second=120.0,
        queue=2,
        in_flight=3,
    )
    servers.traffic = replace(servers.traffic, p95=0.155, requests_per_second=12.4)
    assert servers.step().status is None


def test_the_figures_stay_while_the_operator_does_not_know_them() -> None:
    servers = Servers()
    servers.traffic = Figures(p95=0.15)
    servers.settle()
    servers.traffic = None
    assert servers.settle().job.status.traffic == Traffic(p95_ms=150.0, queue=0, in_flight=0)
    servers.edit(replicas=0)
    assert servers.settle().job.status.traffic is None


def test_a_figure_near_its_limit_does_not_flap() -> None:
    servers = Servers(slo={"p95Ms": 200})
    for p95, status in ((0.199, "True"), (0.201, "False"), (0.199, "False"), (0.18, "True")):
        servers.traffic = Figures(p95=p95)
        servers.settle()
        assert servers.condition["SLOMet"][0] == status


def test_agents_of_roles_with_metrics_learn_their_place() -> None:
    container = {"image": "vllm", "command": ["vllm"], "readinessProbe": {"httpGet": {"port": 8000}}}
    role = {
        "name": "worker",
        "groupSize": 2,
        "metrics": {"path": "/stats"},
        "template": {"spec": {"containers": [container]}},
    }
    servers = Servers(roles=[role], service={"port": 8000}, replicas=1).settle()
    first, second = sorted(servers.assigned, key=lambda one: one.slot)
    pod = servers.live(index="0")[0]
    assert first.scrape == Scrape(pod.ip or "", 8000, "/stats")
    assert second.scrape is None


def test_the_place_of_the_metrics_is_part_of_the_revision() -> None:
    engine = {"name": "worker", "engine": {"name": "lm"}}
    servers = Servers(roles=[engine]).settle()
    before = servers.job.status.update_revision
    assert all(one.scrape is None for one in servers.assigned)
    servers.edit(roles=[{**engine, "metrics": {"port": 9000}}]).settle(200)
    assert servers.job.status.update_revision != before
    assert servers.assigned[-1].scrape is not None and servers.assigned[-1].scrape.port == 9000


def test_the_network_policy_lets_agents_read_the_metrics() -> None:
    role = {"name": "worker", "engine": {"name": "lm"}, "metrics": {"port": 9000}}
    servers = Servers(roles=[role])
    observed = replace(servers.observed(), network=NetworkSettings(enabled=True))
    found = [one.manifest for one in children.reached(observed) if one.resource == NETWORK_POLICIES]
    ports = [port["port"] for rule in found[0]["spec"]["ingress"] for port in rule.get("ports", ())]
    assert 9000 in ports
