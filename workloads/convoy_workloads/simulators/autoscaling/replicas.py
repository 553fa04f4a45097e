"""The replicas of the simulated service."""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.autoscale.samples import Container, Pod, Readiness
from convoy_controllers.autoscale.spec import CPU

_CONTAINERS = (Container("server", {CPU: 1000}),)


@dataclass(frozen=True, slots=True)
class Replica:
    """A simulated replica. Times are in seconds."""

    number: int
    created: int
    """Second at which it was created."""
    ready_at: int
    """Second from which it serves requests."""
    extra_boot: float = 0.0
    """Seconds by which a perturbation has delayed it."""

    @property
    def name(self) -> str:
        """Return the name of the replica's pod."""
        return f"server-{self.number}"

    def pod(self, second: int) -> Pod:
        """Return the pod as the autoscaler sees it."""
        ready = self.ready_at <= second
        readiness = Readiness("True", self.ready_at) if ready else Readiness("False", self.created)
        return Pod(self.name, "Running", False, readiness, self.created, _CONTAINERS)


@dataclass(slots=True)
class Replicas:
    """All replicas of the service, the oldest first."""

    present: list[Replica] = field(default_factory=list)
    pod_seconds: int = 0
    """Sum of the lifetimes of the replicas that were deleted."""
    delays: list[float] = field(default_factory=list)
    """Seconds by which a perturbation delayed each replica that was created while it acted."""
    _created: int = 0

    def scale(self, wanted: int, second: int, boot: float, extra: float = 0.0) -> None:
        """Create or delete replicas until there are `wanted` ones. A new one is ready after `boot` seconds
        and the `extra` seconds of a perturbation.

        As in a ReplicaSet, replicas that are not ready are deleted first, then the youngest ones.
        """
        for _ in range(wanted - len(self.present)):
            ready_at = second + round(boot + extra)
            self.present.append(Replica(self._created, second, ready_at, extra))
            self._created += 1
            if extra:
                self.delays.append(extra)
        for _ in range(len(self.present) - wanted):
            gone = max(self.present, key=lambda one: (one.ready_at > second, one.created, one.number))
            self.present.remove(gone)
            self.pod_seconds += second - gone.created

    def ready(self, second: int) -> int:
        """Return the number of replicas that serve requests."""
        return sum(one.ready_at <= second for one in self.present)

    def pods(self, second: int) -> tuple[Pod, ...]:
        """Return the pods as the autoscaler sees them."""
        return tuple(one.pod(second) for one in self.present)

    def pod_hours(self, second: int) -> float:
        """Return the lifetimes of all replicas up to `second`, in hours."""
        alive = sum(second - one.created for one in self.present)
        return (self.pod_seconds + alive) / 3600
