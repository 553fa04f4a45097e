"""The policy hpa: the autoscaler's own code, with the samples that the policy may see."""

from __future__ import annotations

from convoy_controllers.autoscale import samples, spec
from convoy_controllers.autoscale.decide import decide
from convoy_controllers.autoscale.state import State
from convoy_controllers.servingjob.scaling.settings import behavior
from convoy_workloads.simulators.autoscaling.policies.params import HpaPolicy
from convoy_workloads.simulators.autoscaling.policies.policy import ServiceFacts
from convoy_workloads.simulators.autoscaling.telemetry import CPU, View


class Hpa:
    """The policy in one run."""

    def __init__(self, params: HpaPolicy, facts: ServiceFacts) -> None:
        self.metrics: tuple[str, ...] = (params.metric,)
        self._scaling = scaling(params, facts)
        self._state = State()

    def decide(self, view: View) -> int:
        """Return the decision of the HorizontalPodAutoscaler."""
        seen = samples.Observed(
            spec_replicas=view.replicas,
            status_replicas=len(view.pods),
            pods=view.pods,
            readings=(view.samples[self.metrics[0]],),
        )
        decision = decide(self._scaling, seen, self._state, view.second)
        self._state = decision.state
        return decision.desired


def scaling(params: HpaPolicy, facts: ServiceFacts) -> spec.Scaling:
    """Return the settings of the autoscaler."""
    if params.metric == CPU:
        target = spec.Target(spec.TargetType.UTILIZATION, max(1, round(params.target)))
        metric = spec.Metric(spec.MetricType.RESOURCE, spec.CPU, target)
    else:
        target = spec.Target(spec.TargetType.AVERAGE_VALUE, max(1, round(1000 * params.target)))
        metric = spec.Metric(spec.MetricType.PODS, params.metric, target)
    settings = spec.Settings(
        tolerance=params.tolerance,
        downscale_stabilization_seconds=params.downscale_stabilization_seconds,
    )
    return spec.Scaling(
        max_replicas=facts.max_replicas,
        min_replicas=facts.min_replicas,
        metrics=(metric,),
        behavior=behavior(params.behavior) if params.behavior else None,
        settings=settings,
    )
