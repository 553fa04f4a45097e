"""Machines of a simulated cluster and the network between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from convoy_controllers.liveness.attestation import AttestationRequests
from convoy_controllers.placement.requests import Amounts
from convoy_controllers.simulate.api import Node
from convoy_controllers.simulate.kernel import Kernel


@dataclass(slots=True)
class Machine:
    """A machine. Its state decides what its kubelet, its agent and its ranks can do."""

    name: str
    capacity: int = 8
    """Maximum number of pods of jobs that the machine runs at the same time."""
    powered: bool = True
    booted: bool = True
    """True if kubelet and agent have started since the power came on."""
    cut: bool = False
    """True if the machine is cut off the whole network."""
    control_cut: bool = False
    """True if the machine is cut off the control plane only."""
    agent: bool = True
    """True if the agent's process runs."""
    slow: float = 1.0
    """Factor of the time that ranks on the machine take to compute."""
    farewell: bool = False
    """True if the agent announced its restart before it ended."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the machine's Node, such as its rack."""
    resources: Amounts = field(default_factory=dict)
    """Thousandths of each resource's unit that pods may request, by name of the resource. Resources that are
    missing have no limit.
    """
    requests: AttestationRequests = field(default_factory=AttestationRequests)
    """Requests for attestation that this machine's agent has granted to other nodes. Times are Unix
    seconds.
    """

    @property
    def up(self) -> bool:
        """True if processes can run on the machine."""
        return self.powered and self.booted

    @property
    def reaches_control(self) -> bool:
        """True if the machine runs and its network path to the API server and the hub is intact. These two
        may still be down.
        """
        return self.up and not self.cut and not self.control_cut


def node_of(machine: Machine) -> Node:
    """Return the Node of a machine, as its kubelet registers it."""
    return Node(machine.name, machine.capacity, labels=machine.labels, resources=machine.resources)


class Machines:
    """All machines by name. Each callback in `changed` is called with a machine whose state has changed."""

    def __init__(self, kernel: Kernel, machines: Iterable[Machine]) -> None:
        self._kernel = kernel
        self.by_name = {machine.name: machine for machine in machines}
        self.changed: list[Callable[[Machine], None]] = []

    def __getitem__(self, name: str) -> Machine:
        return self.by_name[name]

    def reaches(self, one: str, other: str) -> bool:
        """Return True if two nodes can exchange packets."""
        if one == other:
            return self.by_name[one].powered
        pair = (self.by_name[one], self.by_name[other])
        return all(machine.powered and not machine.cut for machine in pair)

    def set(self, name: str, **facts: float) -> None:
        """Change the state of a machine and call the callbacks in `changed`."""
        machine = self.by_name[name]
        for key, value in facts.items():
            setattr(machine, key, value)
        for listener in self.changed:
            listener(machine)
