"""The resource requests of pods."""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.autoscale.arithmetic import wrap64
from convoy_controllers.autoscale.failure import FailureKind, MetricError
from convoy_controllers.autoscale.samples import Container, Pod


def requests_of(pods: Iterable[Pod], resource: str, container: str) -> dict[str, int]:
    """Return the request of each pod, by name of the pod, in thousandths.

    With a container, its request; otherwise the request of the whole pod, or the sum over the containers if
    the pod as a whole requests nothing.
    """
    return {pod.name: _request(pod, resource, container) for pod in pods}


def _request(pod: Pod, resource: str, container: str) -> int:
    if not container:
        if pod.requests is None:
            return wrap64(sum(_of_container(pod, one, resource) for one in pod.containers))
        if resource not in pod.requests:
            raise MetricError(
                FailureKind.MISSING_REQUEST,
                f"pod {pod.name} sets resources for the whole pod, but no request for {resource}; "
                f"set spec.resources.requests.{resource}",
            )
        return pod.requests[resource]
    for one in pod.containers:
        if one.name == container:
            return _of_container(pod, one, resource)
    raise MetricError(
        FailureKind.NO_CONTAINER,
        f"pod {pod.name} has no container {container}; name one of its containers in the metric",
    )


def _of_container(pod: Pod, container: Container, resource: str) -> int:
    if resource not in container.requests:
        raise MetricError(
            FailureKind.MISSING_REQUEST,
            f"container {container.name} of pod {pod.name} requests no {resource}; a utilization needs one: "
            f"set resources.requests.{resource} of the container",
        )
    return container.requests[resource]
