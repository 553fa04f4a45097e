"""The seconds of all jobs as counters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from convoy_operator.goodput_meter import GoodputMeter
from convoy_operator.views import Parent

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(name: str, cause: str, since: float, made: float = -60, **seconds: float) -> Parent:
    at = (NOW + timedelta(seconds=since)).isoformat().replace("+00:00", "Z")
    ledger: dict[str, Any] = {"seconds": seconds, "cause": cause, "since": at}
    metadata = {"creationTimestamp": (NOW + timedelta(seconds=made)).isoformat().replace("+00:00", "Z")}
    return Parent("ns", name, f"uid-{name}", 1, {"metadata": metadata, "status": {"goodput": ledger}})


class Harness:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.meter = GoodputMeter(Counter("g", "help", ["cause"], registry=self.registry))

    def count(self, at: float, *jobs: Parent) -> dict[str, float]:
        self.meter.count(jobs, NOW + timedelta(seconds=at))
        causes = ("productive", "detect", "restart", "start")
        found = {cause: self.registry.get_sample_value("g_total", {"cause": cause}) for cause in causes}
        return {cause: value for cause, value in found.items() if value}


def test_seconds_are_counted_while_they_pass() -> None:
    it = Harness()
    assert it.count(0, job("a", "productive", 0, start=5.0)) == {}, "the leader before has counted those"
    assert it.count(10, job("a", "productive", 0, start=5.0)) == {"productive": 10}
    assert it.count(20, job("a", "productive", 0, start=5.0)) == {"productive": 20}


def test_what_turns_out_to_be_another_causes_is_not_counted_twice() -> None:
    it = Harness()
    it.count(0, job("a", "productive", 0))
    assert it.count(10, job("a", "productive", 0)) == {"productive": 10}
    assert it.count(12, job("a", "restart", 11, productive=7.0, detect=4.0)) == {
        "productive": 10, "detect": 4, "restart": 1,
    }  # fmt: skip
    later = job("a", "productive", 15, productive=7.0, detect=4.0, restart=4.0)
    assert it.count(17, later)["productive"] == 10
    assert it.count(20, later)["productive"] == 12


def test_jobs_come_go_and_may_be_unreadable() -> None:
    it = Harness()
    it.count(0)
    it.count(1, job("a", "start", 0), Parent("ns", "odd", "u", 1, {"status": {"goodput": {"seconds": 3}}}))
    assert it.count(5, job("a", "start", 0), job("b", "start", 4)) == {"start": 4}
    assert it.count(6) == {"start": 4}
    it.meter.begin(NOW)
    assert it.count(9, job("b", "start", 4)) == {"start": 4}
    assert it.count(10, job("b", "unheard of", 4), job("c", "start", 8, made=8)) == {"start": 6}
