"""Tests of whole decisions by the rules of HorizontalPodAutoscaler v2."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controllers.autoscale.cases import NOW, Case, cases, sync_of

from convoy_controllers.autoscale.conditions import ConditionReason, ConditionType
from convoy_controllers.autoscale.decide import decide
from convoy_controllers.autoscale.decision import Decision, Reason
from convoy_controllers.autoscale.failure import Failure
from convoy_controllers.autoscale.samples import Observed, Pod, Readiness, Unavailable
from convoy_controllers.autoscale.spec import (
    Behavior,
    Metric,
    MetricType,
    Scaling,
    Target,
    TargetType,
)
from convoy_controllers.autoscale.state import Recommendation, ScaleEvent, State

CHANGED = {"able": "SucceededRescale", "active": "ValidMetricFound", "limited": "DesiredWithinRange"}
TYPES = {
    "able": ConditionType.ABLE_TO_SCALE,
    "active": ConditionType.SCALING_ACTIVE,
    "limited": ConditionType.SCALING_LIMITED,
}


def reasons(decision: Decision) -> dict[str, str | None]:
    found = {key: decision.condition(type_) for key, type_ in TYPES.items()}
    return {key: None if one is None else one.reason.value for key, one in found.items()}


@pytest.mark.parametrize("case", cases("sync"))
def test_decisions_as_upstream(case: Case) -> None:
    scaling, observed = sync_of(case)
    kept = tuple(Recommendation(replicas, NOW - age) for replicas, age in case.get("kept", []))
    decision = decide(scaling, observed, State(kept), NOW)
    assert decision.desired == case["want"]
    assert reasons(decision) == {key: case.get(key, default) for key, default in CHANGED.items()}
    assert decision.changes is (case["want"] != case["replicas"])


def load(replicas: int, wanted: int, pods: int | None = None) -> Observed:
    """Return a workload whose only metric asks for `wanted` replicas."""
    return Observed(replicas, replicas if pods is None else pods, (), ((wanted * 1000,),))


QUEUE = Metric(MetricType.EXTERNAL, "queue", Target(TargetType.AVERAGE_VALUE, 1000))
SCALING = Scaling(10, 1, (QUEUE,))


def test_a_first_sight_keeps_the_present_number_for_the_window() -> None:
    """A restart of the caller, which loses the state, does not shrink the workload at once."""
    state = State()
    for seconds in range(0, 301, 15):
        decision = decide(SCALING, load(5, 2), state, NOW + seconds)
        assert (decision.desired, decision.reason) == (5, Reason.STABILIZED)
        state = decision.state
    decision = decide(SCALING, load(5, 2), state, NOW + 315)
    assert (decision.desired, decision.reason) == (2, Reason.BELOW_TARGET)


def test_a_change_is_an_event_only_once_it_is_written() -> None:
    scaling = replace(SCALING, behavior=Behavior())
    decision = decide(scaling, load(4, 9), State(), NOW)
    assert (decision.desired, decision.reason) == (8, Reason.ABOVE_TARGET)
    assert decision.state.scale_ups == (ScaleEvent(4, NOW),)
    failed = decision.not_written("conflict")
    assert (failed.desired, failed.changes, failed.state.scale_ups) == (4, False, ())
    assert failed.state.recommendations == decision.state.recommendations
    able = failed.condition(ConditionType.ABLE_TO_SCALE)
    assert able is not None and not able.status
    assert able.reason is ConditionReason.FAILED_UPDATE_SCALE and "from 4 to 8: conflict" in able.message


def test_the_rate_limit_counts_written_changes() -> None:
    scaling = replace(SCALING, max_replicas=100, behavior=Behavior())
    decision = decide(scaling, load(4, 90), State(), NOW)
    again = decide(scaling, load(8, 90), decision.state, NOW + 5)
    assert again.desired == 8
    limited = again.condition(ConditionType.SCALING_LIMITED)
    assert limited is not None and limited.reason is ConditionReason.SCALE_UP_LIMIT
    assert decide(scaling, load(8, 90), again.state, NOW + 15).desired == 16


@pytest.mark.parametrize(
    ("present", "wanted", "kept", "reason", "words"),
    [
        (4, 4, 4, Reason.AT_TARGET, "the present 4 replicas"),
        (
            4,
            2,
            4,
            Reason.STABILIZED,
            "queue asks for 2 replicas, 4 stay: an earlier recommendation was higher",
        ),
        (4, 2, 6, Reason.STABILIZED, "an earlier recommendation was higher"),
        (4, 2, 2, Reason.BELOW_TARGET, "all metrics are below their targets: 4 replicas become 2"),
        (4, 6, 4, Reason.ABOVE_TARGET, "queue is above its target: 4 replicas become 6"),
        (
            10,
            12,
            10,
            Reason.LIMITED,
            "queue asks for 12 replicas, 10 stay: the metrics ask for more replicas",
        ),
    ],
)
def test_a_decision_explains_itself(present: int, wanted: int, kept: int, reason: Reason, words: str) -> None:
    decision = decide(SCALING, load(present, wanted), State((Recommendation(kept, NOW - 60),)), NOW)
    assert decision.reason is reason
    assert words in decision.message


def test_the_largest_proposal_counts() -> None:
    metrics = tuple(replace(QUEUE, name=name) for name in ("a", "b", "c"))
    observed = Observed(3, 3, (), ((4000,), (7000,), (6000,)))
    decision = decide(Scaling(10, 1, metrics), observed, State(), NOW)
    assert (decision.desired, decision.message) == (6, "b is above its target: 3 replicas become 6")
    assert [one.replicas for one in decision.proposals] == [4, 7, 6]


def test_of_equal_proposals_the_first_one_is_named() -> None:
    metrics = tuple(replace(QUEUE, name=name) for name in ("a", "b"))
    decision = decide(Scaling(10, 1, metrics), Observed(3, 3, (), ((5000,), (5000,))), State(), NOW)
    assert decision.message.startswith("a is above")


def test_failed_metrics_are_reported_beside_a_change() -> None:
    metrics = (QUEUE, replace(QUEUE, name="other"))
    observed = Observed(3, 3, (), (Unavailable("no answer within 5 s"), (5000,)))
    decision = decide(Scaling(10, 1, metrics), observed, State(), NOW)
    assert decision.desired == 5
    failure = decision.proposals[0].result
    assert isinstance(failure, Failure) and failure.message == "no answer within 5 s"


def test_all_failed_metrics_are_counted() -> None:
    metrics = (QUEUE, replace(QUEUE, name="other"))
    observed = Observed(3, 3, (), (Unavailable("no answer within 5 s"), Unavailable("gone")))
    decision = decide(Scaling(10, 1, metrics), observed, State(), NOW)
    assert (decision.desired, decision.reason) == (3, Reason.METRICS_FAILED)
    assert decision.message == "metric queue: no answer within 5 s (2 metrics failed)"


@pytest.mark.parametrize(
    ("wanted", "reason", "active"),
    [(2, Reason.METRICS_FAILED, False), (3, Reason.AT_TARGET, True), (4, Reason.ABOVE_TARGET, True)],
)
def test_with_a_failed_metric_nothing_shrinks(wanted: int, reason: Reason, active: bool) -> None:
    metrics = (QUEUE, replace(QUEUE, name="other"))
    observed = Observed(3, 3, (), (Unavailable("away"), (wanted * 1000,)))
    decision = decide(Scaling(10, 1, metrics), observed, State((Recommendation(1, NOW - 9999),)), NOW)
    condition = decision.condition(ConditionType.SCALING_ACTIVE)
    assert condition is not None
    assert (decision.reason, condition.status) == (reason, active)


def test_a_failed_metric_stores_no_recommendation() -> None:
    observed = Observed(3, 3, (), (Unavailable("away"),))
    decision = decide(SCALING, observed, State(), NOW)
    assert decision.message == "metric queue: away"
    state = decision.state
    assert state.recommendations == (Recommendation(3, NOW),)
    assert decide(SCALING, observed, state, NOW + 15).state == state


def test_a_number_outside_the_range_is_corrected_without_metrics() -> None:
    observed = Observed(12, 12, (), (Unavailable("away"),))
    decision = decide(replace(SCALING, behavior=Behavior()), observed, State(), NOW)
    assert (decision.desired, decision.reason) == (10, Reason.ABOVE_MAX_REPLICAS)
    assert decision.state.scale_downs == (ScaleEvent(2, NOW),)
    assert decision.proposals == ()


def test_readings_belong_to_metrics() -> None:
    with pytest.raises(ValueError, match="shorter"):
        decide(SCALING, Observed(3, 3, (), ()), State(), NOW)


def test_a_workload_has_metrics() -> None:
    with pytest.raises(ValueError, match="leave them out for the default"):
        Scaling(10, metrics=())


def test_a_proposal_of_zero_gives_way_to_a_negative_one() -> None:
    """A quirk of Kubernetes: its reason would name the second metric."""
    metrics = (QUEUE, Metric(MetricType.EXTERNAL, "debt", Target(TargetType.VALUE, 1000)))
    pods = (Pod("p", readiness=Readiness("True")),)
    state = State((Recommendation(1, NOW - 9999),))
    decision = decide(Scaling(10, 1, metrics), Observed(2, 2, pods, ((0,), (-5000,))), state, NOW)
    assert [one.replicas for one in decision.proposals] == [0, -5]
    active = decision.condition(ConditionType.SCALING_ACTIVE)
    assert active is not None and active.message.startswith("debt asks")
    assert decision.desired == 1
