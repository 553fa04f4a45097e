"""The input of a decision: the pods of a workload and the values of its metrics.

All times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod, or an init container that runs as long as the pod (`restartPolicy: Always`)."""

    name: str
    requests: Mapping[str, int] = field(default_factory=dict)
    """Requests by name of the resource, in thousandths of the resource's unit."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """The Ready condition of a pod."""

    status: str
    """`True`, `False` or `Unknown`."""
    since: float = 0.0
    """Unix seconds at which the status last changed."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the workload. For a group of pods that is one replica: the pod that stands for the group."""

    name: str
    phase: str = "Running"
    deleting: bool = False
    readiness: Readiness | None = None
    started: float | None = None
    """Unix seconds at which the kubelet accepted the pod."""
    containers: tuple[Container, ...] = ()
    requests: Mapping[str, int] | None = None
    """Requests of the whole pod, if its spec sets some (`spec.resources`), in thousandths."""

    @property
    def serves(self) -> bool:
        """True if the pod runs and is ready."""
        return self.phase == "Running" and self.readiness is not None and self.readiness.status == "True"


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a metric for one pod."""

    value: int
    """Value in thousandths of the metric's unit."""
    timestamp: float = 0.0
    window: float = 0.0
    """Seconds before `timestamp` that the value covers."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A metric without a value."""

    message: str


Samples = Mapping[str, Sample]
"""The samples of a metric by name of the pod."""
Values = tuple[int, ...]
"""The values of a metric of type Object or External, in thousandths. Object has exactly one."""
Reading = Samples | Values | Unavailable


@dataclass(frozen=True, slots=True)
class Observed:
    """A workload at the time of a decision."""

    spec_replicas: int
    """Number of replicas that the workload shall have at present."""
    status_replicas: int
    """Number of replicas that exist."""
    pods: tuple[Pod, ...] = ()
    readings: tuple[Reading, ...] = ()
    """The value of each metric, in the order of `Scaling.metrics`."""
    worked_at: float = 0.0
    """Unix seconds of the newest known request of the workload; 0 if none is known. Such a request counts as
    activity, because a queue can be empty each time it is read.
    """
