"""The training of the policy q-learning, on windows that no run of an Experiment uses."""

from __future__ import annotations

from functools import lru_cache

from convoy_workloads.simulators.autoscaling.params import Params
from convoy_workloads.simulators.autoscaling.policies.params import QLearningPolicy
from convoy_workloads.simulators.autoscaling.policies.q_learning import QLearning, QTable
from convoy_workloads.simulators.autoscaling.simulation import run_policy, service_facts, simulate
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.simulator import Outcome

_TRAINING = -1_000_000
"""First seed of the training windows. Seeds of runs are never negative."""
_STRIDE = 7
"""Difference between the initial replicas of successive windows."""


def simulate_arm(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    """Simulate the service once. A policy that has to be trained is trained before, undisturbed."""
    return simulate(trained(params), seed, perturbation)


def trained(params: Params) -> Params:
    """Return the parameters with the trained table, if the policy has to be trained."""
    if isinstance(params.policy, QLearningPolicy) and params.policy.training_windows:
        return Params.model_validate_json(_trained(params.model_dump_json(by_alias=True)))
    return params


@lru_cache(maxsize=64)
def _trained(body: str) -> str:
    """Return parameters with the trained table instead of the policy that learns, as JSON."""
    params = Params.model_validate_json(body)
    policy = params.policy
    if not isinstance(policy, QLearningPolicy):
        raise TypeError("only the policy q-learning is trained")
    table = QTable(params.max_replicas)
    for window in range(policy.training_windows):
        seed = _TRAINING - policy.training_seed * 1000 - window
        run_policy(params, QLearning(policy, service_facts(params, seed), table), seed)
    return params.model_copy(update={"policy": table.frozen(policy.interval_seconds)}).model_dump_json(
        by_alias=True
    )
