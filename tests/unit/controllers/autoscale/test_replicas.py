"""Tests of the number of replicas that one metric asks for."""

from __future__ import annotations

import math

import pytest
from tests.unit.controllers.autoscale.cases import (
    NOW,
    SETTINGS,
    Case,
    cases,
    number,
    pods_of,
    use_of,
    values_of,
)

from convoy_controllers.autoscale import arithmetic
from convoy_controllers.autoscale.failure import FailureKind, MetricError
from convoy_controllers.autoscale.groups import PodGroups, group_pods
from convoy_controllers.autoscale.replicas import Calculation, ReplicaCalculator
from convoy_controllers.autoscale.requests import requests_of
from convoy_controllers.autoscale.samples import Container, Pod, Readiness, Reading, Sample, Unavailable
from convoy_controllers.autoscale.spec import CPU, Metric, MetricType, Target, TargetType, Tolerances
from convoy_controllers.autoscale.usage import AverageValue, Utilization


def calculator(case: Case) -> ReplicaCalculator:
    down, up = case.get("tolerance", (0.1, 0.1))
    replicas = case["replicas"]
    return ReplicaCalculator(replicas, replicas, pods_of(case), Tolerances(down, up), SETTINGS, NOW)


@pytest.mark.parametrize("case", cases("resource"))
def test_utilization_as_upstream(case: Case) -> None:
    metric, reading = use_of(case)
    if "failure" in case:
        with pytest.raises(MetricError) as raised:
            calculator(case).calculate(metric, reading)
        assert raised.value.failure.kind == case["failure"]
        return
    expected = Calculation(case["want"], case["percent"], case["average"])
    assert calculator(case).calculate(metric, reading) == expected


@pytest.mark.parametrize("case", cases("value"))
def test_plain_values_as_upstream(case: Case) -> None:
    metric, reading = values_of(case)
    found = calculator(case).calculate(metric, reading)
    assert (found.replicas, found.current) == (case["want"], number(case["usage"]))


@pytest.mark.parametrize("case", cases("group"))
def test_groups_as_upstream(case: Case) -> None:
    given = case["pod"]
    readiness = Readiness(given["status"], NOW - given["since"]) if "status" in given else None
    started = NOW - given["started"] if "started" in given else None
    pod = Pod("p", given.get("phase", "Succeeded"), given.get("deleting", False), readiness, started)
    sample = case.get("sample")
    samples = {} if sample is None else {"p": Sample(1, NOW - sample.get("age", 0), sample.get("window", 0))}
    found = group_pods((pod,), samples, case.get("resource", CPU), SETTINGS, NOW)
    alone, nobody = frozenset({"p"}), frozenset[str]()
    expected = {
        "ready": PodGroups(1, nobody, nobody, nobody),
        "unready": PodGroups(0, alone, nobody, nobody),
        "missing": PodGroups(0, nobody, alone, nobody),
        "ignored": PodGroups(0, nobody, nobody, alone),
    }
    assert found == expected[case["group"]]


@pytest.mark.parametrize(("age", "ready"), [(119.5, 0), (120, 1)])
def test_an_old_sample_counts_once_the_initialization_is_over(age: float, ready: int) -> None:
    pod = Pod("p", readiness=Readiness("True", NOW - 30), started=NOW - age)
    assert group_pods((pod,), {"p": Sample(1, NOW, 60.0)}, CPU, SETTINGS, NOW).ready == ready


def test_a_pod_of_each_group() -> None:
    ready = Readiness("True", NOW - 180)
    pods = (
        Pod("starts", readiness=None, started=NOW),
        Pod("serves", readiness=ready, started=NOW - 180),
        Pod("silent", readiness=ready, started=NOW - 180),
    )
    samples = {"starts": Sample(1), "serves": Sample(1)}
    found = group_pods(pods, samples, CPU, SETTINGS, NOW)
    assert found == PodGroups(1, frozenset({"starts"}), frozenset({"silent"}), frozenset())


@pytest.mark.parametrize("requests", [{"a": 100, "b": 100}, {"a": 100, "b": 100, "extra": 500}])
@pytest.mark.parametrize("unknown", [{}, {"unknown": 100}])
def test_utilization_counts_pods_with_a_value_and_a_request(
    requests: dict[str, int], unknown: dict[str, int]
) -> None:
    """As TestGetResourceUtilizationRatio{BaseCase,IgnorePodsWithNoRequest,ExtraRequest} upstream."""
    found = Utilization(50, requests).measure({"a": 50, "b": 76, **unknown})
    assert (found.ratio, found.current, found.average) == (1.26, 63, 63)


def test_utilization_without_requests_fails() -> None:
    with pytest.raises(MetricError) as raised:
        Utilization(50, {}).measure({"a": 50})
    assert raised.value.failure.kind is FailureKind.NO_REQUESTS


def test_average_value() -> None:
    found = AverageValue(10000).measure({"a": 5000, "b": 10000})
    assert (found.ratio, found.current) == (0.75, 7500)


POD = Pod("p", containers=(Container("c1", {CPU: 100}), Container("c2", {CPU: 50})))
WHOLE = Pod("p", containers=(Container("c1"), Container("c2", {CPU: 50})), requests={CPU: 800})


@pytest.mark.parametrize(
    ("pod", "container", "expected"),
    [(POD, "", 150), (POD, "c1", 100), (WHOLE, "", 800), (WHOLE, "c2", 50)],
)
def test_requests_as_upstream(pod: Pod, container: str, expected: int) -> None:
    assert requests_of((pod,), CPU, container) == {"p": expected}


@pytest.mark.parametrize(
    ("pod", "container", "kind", "words"),
    [
        (WHOLE, "c1", FailureKind.MISSING_REQUEST, ("container c1", "pod p", "resources.requests.cpu")),
        (POD, "c3", FailureKind.NO_CONTAINER, ("pod p", "container c3")),
        (Pod("p", requests={"memory": 1}), "", FailureKind.MISSING_REQUEST, ("spec.resources.requests.cpu",)),
    ],
)
def test_a_missing_request_is_named(
    pod: Pod, container: str, kind: FailureKind, words: tuple[str, ...]
) -> None:
    with pytest.raises(MetricError) as raised:
        requests_of((pod,), CPU, container)
    failure = raised.value.failure
    assert failure.kind is kind
    assert all(word in failure.message for word in words)


def external(target: TargetType, value: int) -> Metric:
    return Metric(MetricType.EXTERNAL, "queue", Target(target, value))


@pytest.mark.parametrize(
    ("metric", "reading", "kind"),
    [
        (external(TargetType.VALUE, 1), Unavailable("away"), FailureKind.UNAVAILABLE),
        (external(TargetType.VALUE, 1), (), FailureKind.UNAVAILABLE),
        (external(TargetType.VALUE, 1), (1000,), FailureKind.NO_PODS),
        (Metric(MetricType.PODS, "q", Target(TargetType.AVERAGE_VALUE, 1)), {}, FailureKind.NO_PODS),
    ],
)
def test_no_replicas_without_input(metric: Metric, reading: Reading, kind: FailureKind) -> None:
    empty = ReplicaCalculator(1, 1, (), Tolerances(0.1, 0.1), SETTINGS, NOW)
    with pytest.raises(MetricError) as raised:
        empty.calculate(metric, reading)
    assert raised.value.failure.kind is kind


@pytest.mark.parametrize("type_", [MetricType.OBJECT, MetricType.EXTERNAL])
@pytest.mark.parametrize(("value", "expected"), [(9000, 4), (9681, 5), (7919, 4), (6600, 3)])
def test_an_average_within_the_tolerance_changes_nothing(
    type_: MetricType, value: int, expected: int
) -> None:
    four = ReplicaCalculator(4, 4, (), Tolerances(0.1, 0.1), SETTINGS, NOW)
    metric = Metric(type_, "queue", Target(TargetType.AVERAGE_VALUE, 2200))
    assert four.calculate(metric, (value,)).replicas == expected


@pytest.mark.parametrize(
    ("pods", "usage"),
    [("rr", [500]), ("rru", [500, 500, 9000]), ("rru", [500, 500]), ("rrp", [500])],
    ids=["missing", "unready", "unready without a sample", "pending and missing"],
)
def test_at_the_target_pods_without_a_sample_change_nothing(pods: str, usage: list[int]) -> None:
    case: Case = {"replicas": len(pods), "pods": pods, "requests": 1000, "usage": usage, "cpu": 50}
    assert calculator(case).calculate(*use_of(case)).replicas == len(pods)


def test_from_zero_replicas_only_the_value_counts() -> None:
    empty = ReplicaCalculator(0, 0, (), Tolerances(0.1, 0.1), SETTINGS, NOW)
    assert empty.calculate(external(TargetType.VALUE, 1000), (1001,)).replicas == 2
    assert empty.calculate(external(TargetType.AVERAGE_VALUE, 1000), (2001,)).replicas == 3


def test_a_reading_of_the_wrong_form_is_a_fault_of_the_caller() -> None:
    one = ReplicaCalculator(1, 1, (Pod("p"),), Tolerances(0.1, 0.1), SETTINGS, NOW)
    with pytest.raises(TypeError, match="queue of type External"):
        one.calculate(external(TargetType.VALUE, 1), {})
    with pytest.raises(TypeError, match="q of type Pods"):
        one.calculate(Metric(MetricType.PODS, "q", Target(TargetType.AVERAGE_VALUE, 1)), (1,))


def test_arithmetic_of_go() -> None:
    """The figures are those of a Go 1.26 program on amd64."""
    assert [arithmetic.ceil32(one) for one in (math.inf, -math.inf, math.nan, 3e9, -3e9, -0.5)] == [
        *[arithmetic.MIN_INT32] * 5,
        0,
    ]
    assert [arithmetic.ceil64(one) for one in (math.inf, 1e19, 3e9)] == [
        *[arithmetic.MIN_INT64] * 2,
        3 * 10**9,
    ]
    assert arithmetic.ceil32(2147483647.5) == arithmetic.MIN_INT32
    assert arithmetic.wrap32(2**40 + 5) == 5
    assert arithmetic.wrap64(2**63) == arithmetic.MIN_INT64
    assert [arithmetic.quotient(a, b) for a, b in ((7, 2), (-7, 2), (7, -2), (-7, -2))] == [3, -3, -3, 3]
    assert arithmetic.ratio(1, 0.0) == math.inf and arithmetic.ratio(-1, 0.0) == -math.inf
    assert math.isnan(arithmetic.ratio(0, 0.0))
    assert arithmetic.trunc32(-1.9) == -1
