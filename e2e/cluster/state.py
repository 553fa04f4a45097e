"""What a cluster is made of: written before a thing is created, so that `down` can always undo it."""

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
    """A node: its number (addresses and links come from it) and whether its cable is pulled."""

    index: int
    cut: bool = False


@dataclass
class State:
    """The record of one cluster."""

    identity: str
    name: str
    checkout: str
    block: int
    phase: str = "starting"
    """`starting` until the first `up` has succeeded, then `up`; `stopping` once `down` has begun."""
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    processes: dict[str, ProcessId] = field(default_factory=dict)
    """The control plane's processes by component, and each node's first process as `node/<name>`."""
    templates: list[str] = field(default_factory=list)
    """Image templates whose layers the nodes' stores point to: they must stay while the cluster is there."""
    throttled: dict[str, dict[str, str]] = field(default_factory=dict)
    """By pod uid: the quota that each of its cgroups had before, by path."""
    options: dict[str, Any] = field(default_factory=dict)
    firewall: list[str] = field(default_factory=list)
    """Rules added to the machine's FORWARD chain, as arguments of iptables after `-A FORWARD`."""

    @property
    def addresses(self) -> Addresses:
        """The addresses that belong to the cluster's block."""
        return Addresses(self.block)

    def dump(self) -> str:
        """As JSON."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def parse(cls, text: str) -> State:
        """From JSON; raises ClusterError when it is of another format."""
        fields = json.loads(text)
        if fields.pop("format", None) != FORMAT:
            raise ClusterError(
                "the state file has another format; take that cluster down with the tool that made it"
            )
        fields["nodes"] = {name: NodeRecord(**node) for name, node in fields["nodes"].items()}
        fields["processes"] = {name: ProcessId(**one) for name, one in fields["processes"].items()}
        return cls(**fields)


class StateFile:
    """The folder of one cluster, and the state file in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "state.json"

    @property
    def identity(self) -> str:
        """The cluster's unique name, also that of its folder."""
        return self.folder.name

    def load(self) -> State | None:
        """The state, or None when there is no such cluster."""
        try:
            return State.parse(self.path.read_text())
        except FileNotFoundError:
            return None

    def save(self, state: State) -> None:
        """Replace the state file."""
        files.write(self.path, state.dump())

    def lock(self, deadline: float = 300.0) -> Any:
        """Keep other commands off this cluster; the lock file outlives the folder."""
        return files.locked(
            self.folder.parent / f".{self.identity}.lock", deadline=deadline, what=f"cluster {self.identity}"
        )


def clusters_root() -> Path:
    """The folder that holds one folder per cluster of this user."""
    return files.cache_root() / "clusters"


def all_states() -> list[State]:
    """The state of every cluster of this user, from whatever checkout."""
    found = (StateFile(path.parent).load() for path in sorted(clusters_root().glob("*/state.json")))
    return [state for state in found if state is not None]


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
