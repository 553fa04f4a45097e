"""Tests of telemetry in the hub: the pods that it is accepted for, and the jobs that it queues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.telemetry_hub import KEY, RANKS, Hub

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.guard.canary import SETTLE, TABLES
from convoy_crds.trainingjob_straggler import Proof
from convoy_operator import views
from convoy_operator.hub import job_detector


def test_a_slow_rank_is_found_and_its_job_is_woken_once() -> None:
    hub = Hub()
    for step in range(1, 11):
        hub.report(step)
    view = hub.detectors.view("uid-job")
    assert view is not None and view.enough_peers and view.slow == ()
    assert hub.queue.added == [KEY], "the first table gives a view"
    for step in range(11, 16):
        hub.report(step, slow={4: 0.5})
    view = hub.detectors.view("uid-job")
    assert view is not None
    (found,) = view.slow
    assert (found.cause, found.ranks, found.nodes) == ("Compute", (4,), ("n4",))
    assert 0.4 < found.slowdown < 0.6
    assert 0.2 < found.lost < 0.4, "a step that takes 1.5 times as long loses a third"
    assert len(hub.queue.added) == 2


@pytest.mark.parametrize(("members", "found"), [("0-5", "group"), ("0-9", None), ("1-0", None)])
def test_a_slow_communicator_of_the_job_is_found(members: str, found: str | None) -> None:
    hub = Hub()
    for step in range(1, 60):
        slow = 1.5 if step > 30 else 1.0
        hub.report(step, transfer=0.05 * slow * (1 + 0.001 * (step * 7 % 5)), members=members)
    view = hub.detectors.view("uid-job")
    assert view is not None
    assert [(one.cause, one.place) for one in view.slow] == ([("Communication", found)] if found else [])


def test_slow_rank_of_three_is_noticed_without_a_suspicion() -> None:
    hub = Hub(replicas=3)
    for step in range(1, 80):
        hub.report(step, slow={1: 0.3} if step > 30 else {})
    view = hub.detectors.view("uid-job")
    assert view is not None and not view.enough_peers
    (found,) = view.slow
    assert (found.cause, found.ranks, found.proof) == ("Compute", (1,), Proof.FEW_PEERS)
    ((node, (hint,)),) = hub.detectors.noticed().items()
    assert (node, hint.cause, hint.ranks) == ("n1", "Compute", (1,))
    assert hub.detectors.suspicions() == {}
    (slow,) = hub.detectors.paces()["default/job"].slow
    assert (slow.ranks, slow.cause) == (frozenset((1,)), "Compute")


@pytest.mark.parametrize(
    "fault",
    [
        "another incarnation",
        "an unknown pod",
        "another's rank",
        "a stranger's pod",
        "nothing formed",
        "too many collectives",
        "too many micro-batches",
    ],
)
def test_telemetry_of_other_pods_or_incarnations_is_ignored(fault: str) -> None:
    hub = Hub()
    if fault == "another incarnation":
        hub.report(1, incarnation=2)
    elif fault == "an unknown pod":
        hub.report(1, pod="x")
    elif fault == "another's rank":
        for number in range(RANKS):
            window = wire.StepWindow(rank=number, first=1, last=1, wall=2.0, compute=1.0)
            telemetry = wire.PodTelemetry(pod_uid="p0", incarnation=1, windows=[window])
            hub.detectors.record("n0", telemetry)
    elif fault.startswith("too many"):
        for number in range(RANKS):
            window = wire.StepWindow(rank=number, first=1, last=1, wall=2.0, compute=1.0)
            if "micro" in fault:
                window.micro.extend([0.1] * 5000)
            else:
                window.collectives.extend([wire.Collective(kind="dp", members="0-5")] * 65)
            telemetry = wire.PodTelemetry(pod_uid=f"p{number}", incarnation=1, windows=[window])
            hub.detectors.record(f"n{number}", telemetry)
    elif fault == "a stranger's pod":
        for number in range(RANKS):
            raw = hub.pod(number)
            raw["metadata"]["ownerReferences"] = []
            hub.cache.pods.upsert(views.pod({**raw, "metadata": {**raw["metadata"], "resourceVersion": "9"}}))
        hub.report(1)
    else:
        hub.form(2, internal={})
        hub.report(1, incarnation=2)
    assert hub.detectors.view("uid-job") is None
    assert hub.queue.added == []


def test_another_incarnation_gets_a_new_detector() -> None:
    hub = Hub()
    for step in range(1, 12):
        hub.report(step, slow={2: 0.5})
    hub.form(2)
    hub.report(4, incarnation=2)
    view = hub.detectors.view("uid-job")
    assert view is not None and (view.incarnation, view.slow) == (2, ())


def test_the_detector_of_an_ended_job_is_dropped() -> None:
    hub = Hub()
    hub.report(1)
    assert hub.detectors.view("uid-job") is not None
    hub.form(3, phase="Succeeded")
    assert hub.detectors.view("uid-job") is None
    hub.report(2, incarnation=3)
    assert hub.detectors.view("uid-job") is None, "agents report the last steps after the job's end"


def test_a_detector_that_misses_the_canary_is_reported() -> None:
    hub = Hub()
    for step in range(1, SETTLE + TABLES + 1):
        hub.report(step)
    view = hub.detectors.view("uid-job")
    assert view is not None and not view.canary_missed
    hub = Hub()
    for step in range(1, SETTLE + TABLES + 1):
        hub.report(step, measured=False)
        if step == SETTLE + TABLES - 1:
            before = hub.detectors.view("uid-job")
            assert before is not None and not before.canary_missed, "the canary was not tested"
    view = hub.detectors.view("uid-job")
    assert view is not None and view.canary_missed


def test_a_lasting_slowdown_is_a_suspicion_until_the_job_ends() -> None:
    hub = Hub()
    called: list[int] = []
    hub.detectors.on_suspicion = lambda: called.append(1)
    for step in range(1, 21):
        hub.report(step)
    for step in range(21, 60):
        hub.report(step, slow={4: 0.5})
        if hub.detectors.suspicions():
            break
    ((node, (found,)),) = hub.detectors.suspicions().items()
    assert (node, found.job, found.cause, found.ranks) == ("n4", "default/job", "Compute", (4,))
    assert 1.4 < found.slowdown < 1.6
    assert found.loss > 16 * 0.4 * RANKS, "all ranks have waited in each of the windows"
    assert len(called) == 1
    pace = hub.detectors.paces()["default/job"]
    assert (pace.incarnation, pace.ranks, pace.slow[0].ranks) == (1, RANKS, {4})
    assert pace.nodes == {f"n{number}" for number in range(RANKS)}
    assert found.gain == pytest.approx(0.5, rel=0.2) and found.beside == ()
    hub.form(1, phase="Succeeded")
    raw = next(iter(hub.cache.jobs)).raw
    raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": "999"}}
    hub.cache.jobs.upsert(views.cached_object({**raw, "status": {**raw["status"], "phase": "Succeeded"}}))
    assert hub.detectors.suspicions() == {}


def test_a_slow_input_is_noticed_without_a_suspicion() -> None:
    hub = Hub()
    called: list[int] = []
    hub.detectors.on_suspicion = lambda: called.append(1)
    for step in range(1, 60):
        hub.report(step, late={4: 0.5} if step > 20 else {})
    ((node, (found,)),) = hub.detectors.noticed().items()
    assert (node, found.job, found.cause, found.ranks) == ("n4", "default/job", "Input", (4,))
    assert hub.detectors.suspicions() == {} and len(called) == 1
    assert hub.detectors.paces()["default/job"].slow == ()


def test_suspicions_end_with_their_incarnation() -> None:
    hub = Hub()
    for step in range(1, 60):
        hub.report(step, slow={4: 0.5} if step > 20 else {})
    assert hub.detectors.suspicions() and hub.detectors.paces()["default/job"].slow
    hub.form(2)
    assert hub.detectors.suspicions() == {}, "the next table has no reports yet"


@pytest.fixture
def detections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the first step of each table that is processed."""
    found: list[int] = []
    advance = job_detector.advance

    def noted(state: Any, table: Any) -> Any:
        found.append(table.first)
        return advance(state, table)

    monkeypatch.setattr(job_detector, "advance", noted)
    return found


def spans(count: int, since: int = 1, pod: str = "p0") -> wire.PodTelemetry:
    """Return windows of a single rank. Each window completes the table of the window before, because no
    other rank reports.
    """
    windows = [wire.StepWindow(rank=0, first=n, last=n, wall=2.0) for n in range(since, since + count)]
    return wire.PodTelemetry(pod_uid=pod, incarnation=1, windows=windows)


def test_detections_per_job_are_limited(detections: list[int]) -> None:
    """Report more steps than the limit allows. The excess must be dropped, because each detection delays
    all agents by milliseconds.
    """
    hub, more, telemetry = Hub(), 0, spans(2048)
    while more := hub.detectors.record("n0", telemetry, more):
        pass
    assert 64 <= len(detections) < 70
    assert hub.metrics.guard_windows_dropped._value.get() > 1900
    hub.now += 10
    telemetry = spans(2048, 5000)
    while more := hub.detectors.record("n0", telemetry, more):
        pass
    assert 84 <= len(detections) < 95


def test_a_job_that_reports_once_a_second_has_every_detection(detections: list[int]) -> None:
    hub = Hub()
    for step in range(1, 150):
        hub.report(step)
    assert len(detections) == 149 and not hub.metrics.guard_windows_dropped._value.get()


def test_windows_saved_during_a_leader_change_are_processed(detections: list[int]) -> None:
    hub = Hub(replicas=1)
    assert hub.detectors.record("n0", spans(32)) == 1
    for since in range(1, 32):
        hub.detectors.record("n0", spans(32), since)
    assert len(detections) == 32


def test_recording_yields_after_each_detection_and_some_windows(detections: list[int]) -> None:
    hub = Hub()
    turns, more, telemetry = 0, 0, spans(60)
    while more := hub.detectors.record("n0", telemetry, more):
        turns += 1
        assert len(detections) == turns
    assert turns > 50
    telemetry = wire.PodTelemetry(pod_uid="p1", incarnation=1, windows=[wire.StepWindow(rank=0)] * 1000)
    before, turns = len(detections), 0
    while more := hub.detectors.record("n1", telemetry, more):
        turns += 1
    assert len(detections) == before and turns == 15


def test_all_detections_together_use_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, seconds = Hub(), 1.0
    began, detections, advance = hub.now, 0, job_detector.advance

    def slow(state: Any, table: Any) -> Any:
        nonlocal detections
        detections += 1
        hub.now += seconds
        return advance(state, table)

    monkeypatch.setattr(job_detector, "advance", slow)
    for step in range(1, 200):
        more, telemetry = 0, spans(1, step)
        while more := hub.detectors.record("n0", telemetry, more):
            pass
        hub.now += 0.1
    assert 10 < detections < 5 + 0.6 * (hub.now - began)


def test_a_costly_job_loses_only_its_own_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a small job next to a costly one. Only windows of the costly job may be dropped."""
    hub, advance = Hub(), job_detector.advance
    hub.beside("small")
    detections = {"job": 0, "small": 0}

    def costly(state: Any, table: Any) -> Any:
        name = "job" if table.wall.size == RANKS else "small"
        detections[name] += 1
        hub.now += 2.0 if name == "job" else 0.001
        return advance(state, table)

    monkeypatch.setattr(job_detector, "advance", costly)
    for step in range(1, 100):
        for pod in ("small-p0", "p0"):
            more, telemetry = 0, spans(1, step, pod)
            while more := hub.detectors.record("n0", telemetry, more):
                pass
        hub.now += 0.1
    assert detections["small"] >= 98 and detections["job"] < 50


def test_creation_of_a_detector_is_retried_once_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    tries: list[int] = []
    monkeypatch.setattr(hub.detectors, "_made", lambda parent, incarnation: tries.append(incarnation))
    for _ in range(100):
        hub.detectors.record("n0", spans(1))
    assert len(tries) == 1
    hub.now += 1
    hub.detectors.record("n0", spans(1))
    assert len(tries) == 2
