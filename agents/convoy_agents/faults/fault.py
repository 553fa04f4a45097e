"""The interface of one kind of fault."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from convoy_agents.csi import mounts
from convoy_agents.faults.pod_processes import NodeFolders
from convoy_agents.faults.record import Record


@dataclass(frozen=True, slots=True)
class Target:
    """The present target of a fault, as the agent knows it."""

    pod_uid: str
    members: tuple[str, ...]
    """Uids of all pods of the Experiment on this node."""
    first_rank: int
    """Number of the pod's first rank in the job."""
    processes: int
    """Number of ranks in the pod."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of the node that faults use."""

    node: NodeFolders
    kubelet_dir: Path
    save: Callable[[Record], None]
    """Writes a record to disk. It returns when the record is there."""
    clock: Callable[[], float] = field(default=time.monotonic)
    root: Path = Path("/")
    """Folder in which the node's files are, among them `kubelet_dir`."""
    mount_table: Path = mounts.MOUNT_TABLE
    """The mounts of the node's files."""


class Fault(ABC):
    """One fault. All methods block, and no two of them run at the same time.

    A fault writes to `record.undo` how to undo a change, and saves the record, before it makes the change.
    """

    def __init__(self, record: Record, surroundings: Surroundings) -> None:
        self.record = record
        self.order = record.order
        self.around = surroundings
        self.active = False
        """True once the fault has taken effect."""

    @abstractmethod
    def start(self, target: Target) -> None:
        """Begin the fault. Raises FaultError or TargetGone if the pod does not allow it."""

    @abstractmethod
    def keep(self, target: Target) -> None:
        """Renew the fault after changes of the pod, and measure `record.achieved`. Raises FaultError or
        TargetGone if the fault cannot go on.
        """

    @abstractmethod
    def undo(self) -> None:
        """Undo all changes of the record. Idempotent. Raises OSError if a change cannot be undone."""

    def save(self) -> None:
        """Write the record to disk."""
        self.around.save(self.record)
