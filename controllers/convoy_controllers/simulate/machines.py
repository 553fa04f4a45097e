"""The machines of a simulated cluster and the network between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from convoy_controllers.liveness.attestation import AttestationRequests
from convoy_controllers.simulate.kernel import Kernel


@dataclass(slots=True)
class Machine:
    """One machine: what stands of it decides what kubelet, agent and ranks on it can do."""

    name: str
    capacity: int = 8
    """Pods of jobs that fit."""
    powered: bool = True
    booted: bool = True
    """Kubelet and agent are up since it has power."""
    cut: bool = False
    """No packet gets in or out."""
    control_cut: bool = False
    """No packet gets to or from the control plane; to other nodes they do."""
    agent: bool = True
    """Its agent's process is there."""
    farewell: bool = False
    """It said goodbye before it went."""
    requests: AttestationRequests = field(default_factory=AttestationRequests)
    """The attestations that its agent has granted; times are Unix seconds."""

    @property
    def up(self) -> bool:
        """Whether processes on it run."""
        return self.powered and self.booted

    @property
    def reaches_control(self) -> bool:
        """Whether its kubelet and agent reach API server and hub, as far as it lies with this machine."""
        return self.up and not self.cut and not self.control_cut


class Machines:
    """All machines by name; `changed` is told of each whose reach has changed."""

    def __init__(self, kernel: Kernel, machines: Iterable[Machine]) -> None:
        self._kernel = kernel
        self.by_name = {machine.name: machine for machine in machines}
        self.changed: list[Callable[[Machine], None]] = []

    def __getitem__(self, name: str) -> Machine:
        return self.by_name[name]

    def reaches(self, one: str, other: str) -> bool:
        """Whether packets go between two nodes."""
        if one == other:
            return self.by_name[one].powered
        pair = (self.by_name[one], self.by_name[other])
        return all(machine.powered and not machine.cut for machine in pair)

    def set(self, name: str, **facts: bool) -> None:
        """Changes what stands of a machine, and tells of it."""
        machine = self.by_name[name]
        for key, value in facts.items():
            setattr(machine, key, value)
        for listener in self.changed:
            listener(machine)
