"""Makes a policy from its parameters."""

from __future__ import annotations

from typing import assert_never

from convoy_workloads.simulators.autoscaling.policies.forecast import Forecast
from convoy_workloads.simulators.autoscaling.policies.hpa import Hpa
from convoy_workloads.simulators.autoscaling.policies.params import (
    ForecastPolicy,
    HpaPolicy,
    OraclePolicy,
    Policy,
    QLearningPolicy,
    RandomPolicy,
    StaticPolicy,
    TablePolicy,
    ThresholdPolicy,
)
from convoy_workloads.simulators.autoscaling.policies.policy import Rates, ReplicaPolicy, ServiceFacts
from convoy_workloads.simulators.autoscaling.policies.q_learning import QLearning, Table
from convoy_workloads.simulators.autoscaling.policies.simple import Oracle, Random, Static
from convoy_workloads.simulators.autoscaling.policies.threshold import Threshold


def make(params: Policy, facts: ServiceFacts, future: Rates) -> ReplicaPolicy:
    """Return the policy for one run. `future`: the requests of each second, which only the oracle gets."""
    match params:
        case HpaPolicy():
            return Hpa(params, facts)
        case StaticPolicy():
            return Static(params, facts)
        case RandomPolicy():
            return Random(params, facts)
        case ForecastPolicy():
            return Forecast(params, facts)
        case OraclePolicy():
            return Oracle(params, facts, future)
        case ThresholdPolicy():
            return Threshold(params, facts)
        case TablePolicy():
            return Table(params, facts)
        case QLearningPolicy():
            return QLearning(params, facts)
        case _:
            assert_never(params)
