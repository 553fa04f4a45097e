"""Tests of the counters of the jobs' goodput seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from convoy_controllers.cached import CachedObject
from convoy_crds.goodput import Cause
from convoy_crds.terms import MANAGED_BY
from convoy_operator.goodput_meter import GoodputMeter

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class Harness:
    """Successive leaders that count the same jobs. Times are seconds after `NOW`."""

    def __init__(self) -> None:
        self.version = 0
        self.jobs: dict[str, CachedObject] = {}
        self.leaders: list[tuple[GoodputMeter, CollectorRegistry]] = []
        self.lead(0)

    def lead(self, since: float) -> None:
        registry = CollectorRegistry()
        meter = GoodputMeter(Counter("g", "help", ["cause"], registry=registry))
        meter.start_leading(self.jobs.values(), moment(since))
        self.leaders.append((meter, registry))

    @property
    def meter(self) -> GoodputMeter:
        return self.leaders[-1][0]

    def store(
        self,
        name: str,
        cause: str,
        since: float,
        made: float = 0,
        stepped: float | None = None,
        runs: float | None = None,
        **seconds: float,
    ) -> None:
        """Store a job's status. `runs` is the time when its phase became Running."""
        self.version += 1
        status: dict[str, Any] = {
            "goodput": {"seconds": seconds, "cause": cause, "since": moment(since).isoformat()}
        }
        if stepped is not None:
            status["progress"] = {"time": moment(stepped).isoformat()}
        if runs is not None:
            true = {"type": "Running", "status": "True", "lastTransitionTime": moment(runs).isoformat()}
            status |= {"phase": "Running", "conditions": [true]}
        raw = {"metadata": {"creationTimestamp": moment(made).isoformat()}, "status": status}
        self.jobs[name] = CachedObject("ns", name, f"uid-{name}", self.version, raw)

    def delete(self, name: str, at: float) -> None:
        self.meter.remove(self.jobs.pop(name), moment(at))

    def count(self, at: float) -> dict[str, float]:
        """Return the counters of the current leader."""
        self.meter.count(self.jobs.values(), moment(at))
        return self.counted(self.leaders[-1:])

    def counted(self, leaders: Any) -> dict[str, float]:
        values = {
            cause.value: sum(one.get_sample_value("g_total", {"cause": cause}) or 0.0 for _, one in leaders)
            for cause in Cause
        }
        return {cause: value for cause, value in values.items() if value}


def test_seconds_are_counted_while_they_pass() -> None:
    it = Harness()
    it.store("a", "start", 0)
    assert it.count(10) == {"start": 10}
    assert it.count(10) == {"start": 10}
    it.store("a", "productive", 12, start=12.0, stepped=18)
    assert it.count(20) == {"start": 12, "productive": 6}
    it.store("a", "productive", 12, start=12.0, stepped=28)
    assert it.count(30) == {"start": 12, "productive": 16}


def test_the_time_of_a_hang_is_counted_once_its_cause_is_known() -> None:
    it = Harness()
    it.store("a", "productive", 0, stepped=10)
    assert it.count(600) == {"productive": 10}
    it.store("a", "restart", 610, stepped=10, productive=10.0, detect=600.0)
    assert it.count(611) == {"productive": 10, "detect": 600, "restart": 1}


def test_time_moved_to_another_cause_is_not_counted_twice() -> None:
    it = Harness()
    it.store("a", "restart", 0)
    assert it.count(5) == {"restart": 5}
    it.store("a", "restart", 5, restart=1.0, detect=4.0)
    assert sum(it.count(8).values()) == pytest.approx(8)
    it.delete("a", 9)
    assert sum(it.count(20).values()) == pytest.approx(9)


def test_the_last_seconds_of_a_job_are_counted_when_it_is_deleted() -> None:
    it = Harness()
    it.store("a", "start", 0)
    it.count(10)
    it.delete("a", 13)
    assert it.count(20) == {"start": 13} and len(it.meter) == 0
    it.store("b", "start", 21, made=21)
    it.delete("b", 25)
    assert it.count(30) == {"start": 17}, "the job was created and deleted between two counts"


def test_a_recreated_job_is_counted_as_another_job() -> None:
    it = Harness()
    it.store("a", "", 5, start=5.0)
    it.count(10)
    it.delete("a", 11)
    it.store("a", "start", 12, made=12)
    assert it.count(20) == {"start": 13}


@pytest.mark.parametrize("last_count", [0, 25, 30])
def test_leaders_together_count_each_second_once(last_count: float) -> None:
    """Let the first leader renew its Lease for the last time at 30 s, and the second leader start at 40 s.
    Together they must count each second once.
    """
    it = Harness()
    it.store("over", "", 5, start=5.0)
    it.store("runs", "start", 0)
    it.store("trains", "productive", 4, start=4.0, stepped=29)
    it.count(last_count)
    it.store("young", "start", 35, made=35)
    it.lead(30)
    it.store("trains", "restart", 41, stepped=29, start=4.0, productive=26.0, detect=11.0)
    it.count(50)
    counted = it.counted(it.leaders[1:])
    assert sum(counted.values()) == pytest.approx(20 + 21 + 15), "only the seconds after that are counted"
    if last_count == 30:
        assert sum(it.counted(it.leaders).values()) == pytest.approx(5 + 50 + 50 + 15)


def test_an_unreadable_job_is_not_counted_and_affects_no_other_job() -> None:
    it = Harness()
    unreadable = {"metadata": {}, "status": {"goodput": {"seconds": 3}}}
    it.jobs["odd"] = CachedObject("ns", "odd", "u", 1, unreadable)
    it.store("a", "unheard of", 0, start=2.0)
    assert it.count(10) == {"start": 2}
    it.delete("odd", 12)
    assert it.count(13) == {"start": 2}


def test_a_replica_that_does_not_lead_counts_nothing() -> None:
    registry = CollectorRegistry()
    meter = GoodputMeter(Counter("g", "help", ["cause"], registry=registry))
    it = Harness()
    it.store("a", "start", 0)
    meter.remove(it.jobs["a"], moment(5))
    assert registry.get_sample_value("g_total", {"cause": "start"}) == 0


def test_seconds_of_a_job_with_another_manager_are_not_counted() -> None:
    it = Harness()
    for name, manager in (("theirs", "example.com/other"), ("ours", MANAGED_BY)):
        it.store(name, "start", 0)
        it.jobs[name].raw["spec"] = {"managedBy": manager}  # type: ignore[index]
    assert it.count(10) == {"start": 10}
    it.lead(10)
    assert it.count(30) == {"start": 20}
    it.delete("theirs", 40)
    assert it.count(40) == {"start": 30} and len(it.meter) == 1


def test_the_time_of_the_first_step_is_counted_after_the_step() -> None:
    it = Harness()
    it.store("a", "start", 0)
    assert it.count(5) == {"start": 5}
    it.store("a", "start", 0, runs=8)
    assert it.count(20) == {"start": 8}
    it.store("a", "productive", 40, start=40.0, stepped=45, runs=8)
    assert it.count(50) == {"start": 40, "productive": 5}
    it.store("a", "restart", 50, stepped=45, start=40.0, productive=5.0, detect=5.0, runs=50)
    assert it.count(60)["restart"] == 10, "the job reports steps"


DAY = 86400.0


@pytest.mark.parametrize(
    ("cause", "seconds", "more"),
    [
        pytest.param("", {"start": DAY}, {}, id="over"),
        pytest.param("suspended", {"start": DAY}, {"suspended": 30}, id="suspended"),
        pytest.param("restart", {"start": DAY}, {"restart": 30}, id="after a fault"),
    ],
)
def test_run_time_of_a_job_that_reports_no_steps_is_not_counted(
    cause: str, seconds: dict[str, float], more: dict[str, float]
) -> None:
    it = Harness()
    it.store("a", "start", 0, runs=60)
    assert it.count(DAY - 10) == {"start": 60}
    it.store("a", cause, DAY, **seconds)
    assert it.count(DAY + 30) == {"start": 60, **more}
    it.lead(DAY + 30)
    it.store("a", cause, DAY, **seconds)
    assert it.count(DAY + 40) == dict.fromkeys(more, 10.0)
    it.delete("a", DAY + 50)
    assert it.count(DAY + 50) == dict.fromkeys(more, 20.0)


def test_a_second_run_without_steps_is_not_counted() -> None:
    for seen in (True, False):
        it = Harness()
        it.store("a", "restart", 0, runs=10)
        assert it.count(DAY) == {"restart": 10}
        if seen:
            it.store("a", "restart", 0)
            assert it.count(DAY + 5) == {"restart": 10}
            assert it.count(DAY + 15) == {"restart": 20}
        it.store("a", "restart", 0, runs=DAY + 20)
        assert it.count(2 * DAY) == {"restart": 25 if seen else 10}
        it.store("a", "productive", 2 * DAY, restart=2 * DAY, stepped=2 * DAY + 7, runs=DAY + 20)
        counted = it.count(2 * DAY + 7)
        assert counted["productive"] == 7
        assert counted["restart"] == pytest.approx((25 if seen else 10) + DAY - 20), (
            "only the run that reported a step is counted"
        )


def test_a_new_leader_counts_a_run_held_back_by_the_previous_leader() -> None:
    it = Harness()
    it.store("a", "start", 0, runs=10)
    assert it.count(30) == {"start": 10}
    it.lead(40)
    assert it.count(100) == {}
    it.store("a", "productive", 200, start=200.0, stepped=210, runs=10)
    assert it.count(210) == {"start": 190, "productive": 10}
