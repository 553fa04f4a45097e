"""Groups the pods of a workload: pods whose samples count, pods that are not ready, pods without a sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from convoy_controllers.autoscale.samples import Pod, Sample, Samples
from convoy_controllers.autoscale.spec import CPU, Settings


@dataclass(frozen=True, slots=True)
class PodGroups:
    """The names of a workload's pods, by the use of their samples."""

    ready: int
    """Number of pods whose samples count."""
    unready: frozenset[str]
    """Pods that are pending or still starting."""
    missing: frozenset[str]
    """Pods that run but have no sample."""
    ignored: frozenset[str]
    """Pods that are being deleted or have failed."""


def group_pods(
    pods: Iterable[Pod], samples: Samples, resource: str, settings: Settings, now: float
) -> PodGroups:
    """Group the pods. `resource` is the name of the sampled resource, empty for other metrics.

    The first rule that fits a pod decides. Only samples of processor time depend on readiness, because a
    process that starts uses more processor time than it will later.
    """
    ready = 0
    unready, missing, ignored = set[str](), set[str](), set[str]()
    for pod in pods:
        if pod.deleting or pod.phase == "Failed":
            ignored.add(pod.name)
        elif pod.phase == "Pending":
            unready.add(pod.name)
        elif (sample := samples.get(pod.name)) is None:
            missing.add(pod.name)
        elif resource == CPU and _starting(pod, sample, settings, now):
            unready.add(pod.name)
        else:
            ready += 1
    return PodGroups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _starting(pod: Pod, sample: Sample, settings: Settings, now: float) -> bool:
    readiness, started = pod.readiness, pod.started
    if readiness is None or started is None:
        return True
    not_ready = readiness.status == "False"
    if started + settings.cpu_initialization_seconds > now:
        # A sample that covers time before the pod became ready shows the start, not the service.
        return not_ready or sample.timestamp < readiness.since + sample.window
    # A pod that has been ready before is not starting, but broken: its sample counts.
    return not_ready and started + settings.initial_readiness_delay_seconds > readiness.since
