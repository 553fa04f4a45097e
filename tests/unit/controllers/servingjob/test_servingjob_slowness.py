"""Tests of the detector of slow replicas, and of the condition that names them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.unit.controllers.servingjob.servers import Servers

from convoy_controllers.servingjob.slowness import WINDOW_SECONDS, Detector, Work, at_like_load
from convoy_controllers.servingjob.traffic import Figures, SlowReplica


def detected(replicas: int, slowdown: float, windows: int = 60, tokens: float = 1.0) -> Detector:
    """Return the detector after windows in which replica p1 is slow from the 15th on. It generates `tokens`
    times as many tokens as the others.
    """
    rng = random.Random(7)
    names = [f"p{number}" for number in range(replicas)]
    totals = {name: Work(1, 0.0, 0) for name in names}
    detector = Detector.of(names)
    for window in range(windows):
        detector = detector.advanced(totals, window * WINDOW_SECONDS)
        for name in names:
            before, slow = totals[name], name == "p1" and window >= 15
            made = int(1000 * rng.uniform(0.85, 1.15) * (tokens if name == "p1" else 1.0))
            seconds = made * 0.002 * rng.lognormvariate(0, 0.05) * (slowdown if slow else 1.0)
            totals = {**totals, name: Work(1, before.seconds + seconds, before.tokens + made)}
    return detector


@pytest.mark.parametrize(("replicas", "proven"), [(4, True), (3, False)])
def test_a_slow_replica_is_named(replicas: int, proven: bool) -> None:
    (found,) = detected(replicas, 1.6).slow
    assert (found.pod, found.proven) == ("p1", proven)
    assert found.slowdown == pytest.approx(0.6, abs=0.15)


def test_noise_names_nobody() -> None:
    assert detected(4, 1.0).slow == ()


def test_a_replica_with_another_load_is_not_compared() -> None:
    assert detected(4, 1.6, tokens=0.4).slow == ()


def test_a_restarted_or_idle_replica_does_not_count() -> None:
    assert Work(2, 1.0, 10).since(Work(1, 0.5, 5)) is None
    assert Work(1, 0.4, 10).since(Work(1, 0.5, 5)) is None
    assert Work(1, 1.0, 10).since(Work(1, 0.5, 5)) == Work(1, 0.5, 5)
    busy, idle = Work(1, 2.0, 1000), Work(1, 0.1, 3)
    assert set(at_like_load({"a": busy, "b": idle, "c": busy})) == {"a", "c"}
    assert at_like_load({"a": idle}) == {}


def test_a_window_ends_after_its_time() -> None:
    first = Detector.of(["a", "b"]).advanced({"a": Work(1, 0, 0), "b": Work(1, 0, 0)}, 5.0)
    assert first.advanced({}, 5.0 + WINDOW_SECONDS - 0.1) is first
    assert first.advanced({}, 5.0 + WINDOW_SECONDS).at == 5.0 + WINDOW_SECONDS


def test_the_condition_names_the_replica_and_costs_no_further_write() -> None:
    servers = Servers().settle()
    assert "StragglerDetected" not in servers.condition
    pod = servers.live(group="1")[0]
    slow = SlowReplica(pod.uid, 0.52, proven=False)
    servers.traffic = Figures(p95=0.1, slow=(slow,))
    servers.settle()
    assert servers.condition["StragglerDetected"] == ("True", "SlowReplica")
    message = servers.message("StragglerDetected")
    assert f"replica worker-1 on node {pod.node} needs 52% more" in message and "only a suspicion" in message
    assert servers.events.count("SlowReplica") == 1
    assert servers.job.status.reason == "SlowReplica"
    servers.traffic = replace(servers.traffic, slow=(replace(slow, slowdown=0.61),))
    assert servers.step().status is None
    servers.traffic = None
    assert servers.settle().condition["StragglerDetected"][0] == "True", "the operator knows nothing yet"
    servers.traffic = Figures()
    assert "StragglerDetected" not in servers.settle().condition
