"""Properties that hold for every decision, checked on random series."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_controllers.autoscale.decide import decide
from convoy_controllers.autoscale.decision import CHANGE_REASONS, Reason
from convoy_controllers.autoscale.samples import Observed
from convoy_controllers.autoscale.spec import (
    Behavior,
    Metric,
    MetricType,
    Policy,
    PolicyType,
    Scaling,
    ScalingRules,
    SelectPolicy,
    Target,
    TargetType,
)
from convoy_controllers.autoscale.state import State, needed

QUEUE = Metric(MetricType.EXTERNAL, "queue", Target(TargetType.AVERAGE_VALUE, 1000))
NOW = 1_000_000.0

policies = st.builds(
    Policy, st.sampled_from(PolicyType), st.integers(1, 20), st.sampled_from((15, 30, 60, 120))
)
rules = st.builds(
    ScalingRules,
    st.lists(policies, min_size=1, max_size=3).map(tuple),
    st.sampled_from(SelectPolicy),
    st.sampled_from((None, 0, 30, 60, 300)),
    st.sampled_from((None, 0.0, 0.05, 0.5)),
)
behaviors = st.none() | st.builds(Behavior, rules, rules)
scalings = st.builds(
    lambda least, more, behavior: Scaling(
        max(1, least + more), least, (QUEUE,), behavior, cooldown_seconds=60
    ),
    st.integers(0, 5),
    st.integers(0, 20),
    behaviors,
)
loads = st.lists(st.integers(0, 30), min_size=1, max_size=25)
FEW = settings(max_examples=40, deadline=None)


def observe(replicas: int, queue: int) -> Observed:
    return Observed(replicas, replicas, (), ((queue * 1000,),))


@FEW
@given(scalings, loads)
def test_every_decision_stays_in_range(scaling: Scaling, series: list[int]) -> None:
    replicas, state = max(1, scaling.min_replicas), State()
    for i, queue in enumerate(series):
        decision = decide(scaling, observe(replicas, queue), state, NOW + 15 * i)
        assert scaling.min_replicas <= decision.desired <= scaling.max_replicas
        assert decision.present == replicas
        assert not decision.changes or decision.reason in CHANGE_REASONS
        if decision.desired > replicas:
            assert decision.reason in (Reason.ABOVE_TARGET, Reason.STABILIZED, Reason.ACTIVATED)
        elif decision.desired < replicas:
            assert decision.reason in (Reason.BELOW_TARGET, Reason.IDLE)
        else:
            assert decision.reason in (Reason.AT_TARGET, Reason.STABILIZED, Reason.LIMITED, Reason.IDLE)
        replicas, state = decision.desired, decision.state


@FEW
@given(scalings, loads)
def test_the_needed_recommendations_decide_as_all(scaling: Scaling, series: list[int]) -> None:
    replicas, state = max(1, scaling.min_replicas), State()
    fewer = state
    for i, queue in enumerate(series):
        now = NOW + 15 * i
        fewer = replace(fewer, recommendations=needed(fewer.recommendations))
        decision = decide(scaling, observe(replicas, queue), state, now)
        again = decide(scaling, observe(replicas, queue), fewer, now)
        assert replace(again, state=decision.state, unwritten=decision.unwritten) == decision
        replicas, state, fewer = decision.desired, decision.state, again.state


@FEW
@given(scalings, st.integers(1, 30), st.integers(0, 30))
def test_constant_load_comes_to_rest(scaling: Scaling, start: int, queue: int) -> None:
    """Without a disabled direction, the workload reaches one number and stays there."""
    if scaling.behavior is not None:
        up, down = (
            replace(one, select_policy=SelectPolicy.MAX)
            for one in (scaling.behavior.scale_up, scaling.behavior.scale_down)
        )
        scaling = replace(scaling, behavior=Behavior(up, down))
    replicas, state = start, State()
    reached = []
    for i in range(400):
        decision = decide(scaling, observe(replicas, queue), state, NOW + 15 * i)
        replicas, state = decision.desired, decision.state
        reached.append(replicas)
    assert len(set(reached[-50:])) == 1
