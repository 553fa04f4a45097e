"""The policy threshold: one replica more or less, as in the threshold policies with which learned autoscalers
are compared.
"""

from __future__ import annotations

from convoy_workloads.simulators.autoscaling.policies.params import ThresholdPolicy
from convoy_workloads.simulators.autoscaling.policies.policy import ServiceFacts, utilization
from convoy_workloads.simulators.autoscaling.telemetry import CPU, View


class Threshold:
    """The policy in one run."""

    metrics: tuple[str, ...] = (CPU,)

    def __init__(self, params: ThresholdPolicy, facts: ServiceFacts) -> None:
        self._params = params
        self._facts = facts

    def decide(self, view: View) -> int:
        """Return one replica more above the threshold, and one less if the others would stay well below."""
        used = utilization(view)
        if used is None:
            return view.replicas
        if used > self._params.threshold:
            return self._facts.clamp(view.replicas + 1)
        fewer = view.replicas - 1
        if fewer and used * view.replicas / fewer < self._params.shrink_ratio * self._params.threshold:
            return self._facts.clamp(fewer)
        return view.replicas
