"""Tests of scale to zero: KEDA's semantics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy_controllers.autoscale.conditions import ConditionReason, ConditionType
from convoy_controllers.autoscale.decide import decide
from convoy_controllers.autoscale.decision import Decision, Reason
from convoy_controllers.autoscale.samples import Observed, Pod, Readiness, Reading, Sample, Unavailable
from convoy_controllers.autoscale.spec import CPU, Metric, MetricType, Scaling, Target, TargetType
from convoy_controllers.autoscale.state import Recommendation, State

NOW = 1_000_000.0
QUEUE = Metric(MetricType.EXTERNAL, "queue", Target(TargetType.AVERAGE_VALUE, 10_000))
WAITING = Metric(MetricType.PODS, "waiting", Target(TargetType.AVERAGE_VALUE, 10_000))
USE = Metric(MetricType.RESOURCE, CPU, Target(TargetType.AVERAGE_VALUE, 100))
SCALING = Scaling(10, 0, (QUEUE,))
ACTIVE = State((Recommendation(1, NOW - 5000),), active_at=NOW)
"""A state whose metric was active at NOW."""
READY = Readiness("True", 0.0)
AWAY = Unavailable("no answer within 5 s")


def queue(replicas: int, waiting: int) -> Observed:
    """Return a workload with a queue of so many requests."""
    return Observed(replicas, replicas, (), ((waiting * 1000,),))


def at_zero(decision: Decision) -> bool:
    """Return the status of the condition ScaledToZero."""
    condition = decision.condition(ConditionType.SCALED_TO_ZERO)
    assert condition is not None
    expected = ConditionReason.SCALED_TO_ZERO if condition.status else ConditionReason.NOT_SCALED_TO_ZERO
    assert condition.reason is expected
    return condition.status


@pytest.mark.parametrize(("seconds", "desired"), [(0, 1), (299, 1), (300, 1), (300.5, 0)])
def test_the_cooldown_starts_at_the_last_activity(seconds: float, desired: int) -> None:
    decision = decide(SCALING, queue(1, 0), ACTIVE, NOW + seconds)
    assert decision.desired == desired
    assert at_zero(decision) is decision.state.at_zero is (desired == 0)


def test_activity_restarts_the_cooldown() -> None:
    state = decide(SCALING, queue(1, 1), ACTIVE, NOW + 299).state
    assert decide(SCALING, queue(1, 0), state, NOW + 599).desired == 1
    assert decide(SCALING, queue(1, 0), state, NOW + 600).desired == 0


@pytest.mark.parametrize(("seconds", "desired"), [(250, 1), (550, 1), (550.5, 0)])
def test_the_cooldown_starts_at_the_last_request(seconds: float, desired: int) -> None:
    """A queue can be empty each time it is read, although requests arrive all the time."""
    worked = replace(queue(1, 0), worked_at=NOW + 250)
    state = decide(SCALING, worked, ACTIVE, NOW + 250).state
    assert decide(SCALING, worked, ACTIVE, NOW + seconds).desired == desired
    assert decide(SCALING, queue(1, 0), state, NOW + seconds).desired == desired


def test_an_old_request_changes_nothing() -> None:
    assert decide(SCALING, replace(queue(1, 0), worked_at=NOW - 90), ACTIVE, NOW + 300).desired == 1
    assert decide(SCALING, replace(queue(1, 0), worked_at=NOW - 90), ACTIVE, NOW + 301).desired == 0


def test_a_request_that_ends_at_zero_activates_nothing() -> None:
    """A draining replica does not bring its workload back."""
    worked = replace(queue(0, 0), worked_at=NOW)
    assert decide(SCALING, worked, replace(ACTIVE, at_zero=True), NOW).desired == 0


def test_the_first_sight_starts_a_cooldown() -> None:
    """A restart of the caller, which loses the state, scales nothing to zero at once."""
    first = decide(SCALING, queue(1, 0), State(), NOW)
    assert (first.desired, first.state.active_at) == (1, NOW)
    assert decide(SCALING, queue(1, 0), first.state, NOW + 301).desired == 0


def test_the_cooldown_is_for_the_step_to_zero_only() -> None:
    """From 5 replicas to 1 the rules of the autoscaler hold, whatever the cooldown is."""
    scaling = replace(SCALING, cooldown_seconds=86_400)
    assert decide(scaling, queue(5, 0), ACTIVE, NOW).desired == 1


def test_an_idle_workload_goes_to_zero_from_any_number() -> None:
    """As in KEDA, the activation threshold has priority over the target."""
    scaling = replace(SCALING, metrics=(replace(QUEUE, activation=50_000),))
    assert decide(scaling, queue(4, 40), ACTIVE, NOW + 300).desired == 4
    decision = decide(scaling, queue(4, 40), ACTIVE, NOW + 301)
    assert (decision.desired, decision.reason) == (0, Reason.IDLE)
    assert "4 replicas become 0" in decision.message
    assert decide(scaling, queue(4, 51), ACTIVE, NOW + 301).desired > 4


@pytest.mark.parametrize(("waiting", "desired"), [(50, 0), (51, 1)])
def test_the_workload_leaves_zero_above_the_activation_threshold(waiting: int, desired: int) -> None:
    scaling = replace(SCALING, metrics=(replace(QUEUE, activation=50_000),))
    decision = decide(scaling, queue(0, waiting), replace(ACTIVE, at_zero=True), NOW + 9000)
    assert (decision.present, decision.desired) == (0, desired)
    assert decision.reason is (Reason.ACTIVATED if desired else Reason.IDLE)
    assert decision.state.at_zero is at_zero(decision) is (desired == 0)
    if desired:
        assert decision.state.active_at == NOW + 9000


def test_a_workload_that_someone_else_set_to_zero_is_activated_too() -> None:
    assert decide(SCALING, queue(0, 1), State(), NOW).desired == 1


def test_a_refused_write_keeps_the_workload_at_zero() -> None:
    decision = decide(SCALING, queue(0, 1), replace(ACTIVE, at_zero=True), NOW).not_written("conflict")
    assert (decision.desired, decision.state.at_zero) == (0, True)
    assert decide(SCALING, queue(0, 1), decision.state, NOW + 1).desired == 1


def test_at_zero_no_recommendation_is_kept() -> None:
    """Decisions at zero may come at any time, not only every 15 s."""
    state = replace(ACTIVE, at_zero=True)
    for seconds in range(5):
        state = decide(SCALING, queue(0, 0), state, NOW + seconds).state
    assert state.recommendations == ACTIVE.recommendations


def test_a_raised_minimum_brings_the_workload_back() -> None:
    state = decide(SCALING, queue(1, 0), ACTIVE, NOW + 301).state
    decision = decide(replace(SCALING, min_replicas=2), queue(0, 0), state, NOW + 302)
    assert (decision.desired, decision.reason) == (2, Reason.BELOW_MIN_REPLICAS)
    assert not at_zero(decision) and not decision.state.at_zero


def test_without_scale_to_zero_a_workload_at_zero_is_switched_off() -> None:
    decision = decide(replace(SCALING, min_replicas=1), queue(0, 100), State(), NOW)
    assert (decision.desired, decision.reason) == (0, Reason.DISABLED)


def test_an_unknown_metric_keeps_the_workload_above_zero() -> None:
    decision = decide(SCALING, Observed(1, 1, (), (AWAY,)), ACTIVE, NOW + 9000)
    assert (decision.desired, decision.reason) == (1, Reason.METRICS_FAILED)


def test_one_unknown_metric_of_two_keeps_the_workload_above_zero() -> None:
    scaling = replace(SCALING, metrics=(QUEUE, replace(QUEUE, name="other")))
    for readings in ((AWAY, (0,)), ((0,), AWAY)):
        decision = decide(scaling, Observed(1, 1, (), readings), ACTIVE, NOW + 9000)
        assert decision.desired == 1
        assert decide(scaling, Observed(0, 0, (), readings), ACTIVE, NOW).desired == 0


def test_one_active_metric_of_two_is_enough() -> None:
    scaling = replace(SCALING, metrics=(QUEUE, replace(QUEUE, name="other")))
    decision = decide(scaling, Observed(0, 0, (), (AWAY, (1,))), ACTIVE, NOW)
    assert (decision.desired, decision.message) == (
        1,
        "other is above its activation threshold: 0 replicas become 1",
    )


def test_an_unknown_metric_at_zero_is_reported() -> None:
    decision = decide(SCALING, Observed(0, 0, (), (AWAY,)), ACTIVE, NOW)
    assert decision.desired == 0
    active = decision.condition(ConditionType.SCALING_ACTIVE)
    assert active is not None and not active.status
    assert active.reason is ConditionReason.FAILED_GET_EXTERNAL_METRIC
    assert active.message == "metric queue: no answer within 5 s"


PODS = replace(SCALING, metrics=(WAITING,))
SERVES, STARTS = Pod("a", readiness=READY), Pod("b", readiness=Readiness("False"))


@pytest.mark.parametrize(
    ("pods", "samples", "desired"),
    [
        ((SERVES,), {"a": Sample(0)}, 0),
        ((SERVES,), {"a": Sample(1)}, 1),
        ((SERVES,), {}, 1),
        ((SERVES, replace(SERVES, name="c")), {"a": Sample(0)}, 1),
        ((STARTS,), {}, 0),
        ((SERVES, STARTS), {"a": Sample(0)}, 0),
        ((Pod("b", "Pending"),), {}, 0),
    ],
    ids=["idle", "busy", "silent", "one silent", "starting", "one starting", "pending"],
)
def test_a_ready_pod_without_a_sample_may_be_busy(
    pods: tuple[Pod, ...], samples: Reading, desired: int
) -> None:
    """A lost node agent must not let a busy workload go to zero."""
    decision = decide(PODS, Observed(1, 1, pods, (samples,)), ACTIVE, NOW + 301)
    assert decision.desired == desired


def test_at_zero_a_metric_of_pods_is_zero_without_pods() -> None:
    assert decide(PODS, Observed(0, 0, (), ({},)), ACTIVE, NOW).reason is Reason.IDLE
    assert decide(PODS, Observed(0, 0, (), ({"activator-0": Sample(1)},)), ACTIVE, NOW).desired == 1


def test_the_values_of_pods_are_added_up() -> None:
    scaling = replace(PODS, metrics=(replace(WAITING, activation=3),))
    for each, desired in ((1, 0), (2, 1)):
        samples = {"activator-0": Sample(each), "activator-1": Sample(each)}
        assert decide(scaling, Observed(0, 0, (), (samples,)), ACTIVE, NOW).desired == desired


def test_the_use_of_a_resource_is_no_activity() -> None:
    scaling = replace(SCALING, metrics=(QUEUE, USE))
    observed = Observed(1, 1, (SERVES,), ((0,), {"a": Sample(10_000)}))
    assert decide(scaling, observed, ACTIVE, NOW + 301).desired == 0
