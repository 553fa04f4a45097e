"""The state file of a cluster. It records each resource before the resource is created, so `down` can
delete all.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.cluster import files
from e2e.cluster.addresses import Addresses, choose_block
from e2e.cluster.errors import ClusterError
from e2e.cluster.processes import ProcessId

FORMAT = 2


@dataclass
class NodeRecord:
    """The number of a node, from which its addresses and links derive. `cut` is True while the node is cut
    off the network.
    """

    index: int
    cut: bool = False


@dataclass
class State:
    """All that is recorded about one cluster."""

    identity: str
    name: str
    checkout: str
    block: int
    phase: str = "starting"
    """`starting` until the first `up` has succeeded, then `up`; `stopping` after `down` has started."""
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    processes: dict[str, ProcessId] = field(default_factory=dict)
    """The control plane's processes by component, and each node's first process as `node/<name>`."""
    templates: list[str] = field(default_factory=list)
    """Image templates that the nodes' container stores link to. They must not be deleted while the cluster
    exists.
    """
    throttled: dict[str, dict[str, str]] = field(default_factory=dict)
    """Previous CPU quotas of throttled pods, by pod uid and then by the path of each cgroup."""
    options: dict[str, Any] = field(default_factory=dict)
    firewall: list[str] = field(default_factory=list)
    """Rules added to the machine's FORWARD chain, as arguments of iptables after `-A FORWARD`."""

    @property
    def addresses(self) -> Addresses:
        """Addresses of the cluster's address block."""
        return Addresses(self.block)

    def dump(self) -> str:
        """Return the state as JSON."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def parse(cls, text: str) -> State:
        """Return the state that a JSON text holds. Raises ClusterError if the text has another format."""
        fields = json.loads(text)
        if fields.pop("format", None) != FORMAT:
            raise ClusterError(
                "the state file has another format; delete that cluster with the checkout that created it"
            )
        fields["nodes"] = {name: NodeRecord(**node) for name, node in fields["nodes"].items()}
        fields["processes"] = {name: ProcessId(**one) for name, one in fields["processes"].items()}
        return cls(**fields)


class StateFile:
    """A cluster's folder and the state file in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "state.json"

    @property
    def identity(self) -> str:
        """The cluster's unique name, which is also the name of its folder."""
        return self.folder.name

    def load(self) -> State | None:
        """Return the state; None if there is no such cluster."""
        try:
            return State.parse(self.path.read_text())
        except FileNotFoundError:
            return None

    def save(self, state: State) -> None:
        """Replace the state file."""
        files.write(self.path, state.dump())

    def lock(self, deadline: float = 300.0) -> Any:
        """Return a context manager that keeps other commands from changing this cluster. The lock file is
        never deleted.
        """
        return files.locked(
            self.folder.parent / f".{self.identity}.lock", deadline=deadline, what=f"cluster {self.identity}"
        )


def clusters_root() -> Path:
    """Return the folder that has one folder for each of this user's clusters."""
    return files.cache_root() / "clusters"


def all_states() -> list[State]:
    """Return the states of all clusters of this user, from every checkout."""
    found = (StateFile(path.parent).load() for path in sorted(clusters_root().glob("*/state.json")))
    return [state for state in found if state is not None]


def templates_in_use() -> set[str]:
    """Return the paths of all image templates that a cluster uses."""
    return {path for state in all_states() for path in state.templates}


def allocate(file: StateFile, name: str, routes: list[str], options: dict[str, Any]) -> State:
    """Reserve an address range for a new cluster and write its first state."""
    with files.locked(clusters_root() / ".allocation.lock", deadline=30, what="address allocation"):
        taken = {state.block for state in all_states()}
        state = State(
            identity=file.identity,
            name=name,
            checkout=str(files.CHECKOUT),
            block=choose_block(file.identity, taken, routes),
            options=options,
        )
        file.save(state)
        return state
