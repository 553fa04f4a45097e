"""The other replicas of a job, as their messages have shown them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from convoy_workloads.serving.replication.messages import Sender
from convoy_workloads.serving.replication.operation import Vector

MAX_CONTACTS = 256
"""Maximum number of processes that are remembered. The ones that have been silent longest are dropped."""


@dataclass(slots=True)
class Contact:
    """The process of another replica."""

    vector: Vector = field(default_factory=dict)
    """The least that the process is known to have."""
    at: float = 0.0
    """Seconds of the event loop clock at which its last message arrived."""
    drains: bool = False
    joins: bool = True


class Contacts:
    """The processes of other replicas, by their ids."""

    def __init__(self, own: bytes) -> None:
        """`own`: id of this process."""
        self._own = own
        self._found: dict[bytes, Contact] = {}
        self._removed: dict[bytes, None] = {}
        """Processes that were peers and are none any more."""

    def record(self, sender: Sender, vector: Mapping[bytes, int], now: float) -> None:
        """Record a message. `vector`: the operations that its sender has, at least."""
        if sender.process == self._own:
            return
        found = self._found.pop(sender.process, None) or Contact()
        self._found[sender.process] = found
        found.at, found.drains = now, found.drains or sender.drains
        found.joins = found.joins and sender.joins  # Messages may overtake each other.
        for origin, sequence in vector.items():
            found.vector[origin] = max(sequence, found.vector.get(origin, 0))
        while len(self._found) > MAX_CONTACTS:
            del self._found[next(iter(self._found))]

    def remove(self, process: bytes) -> None:
        """Record that a process is no peer any more."""
        self._found.pop(process, None)
        self._removed[process] = None
        while len(self._removed) > MAX_CONTACTS:
            del self._removed[next(iter(self._removed))]

    def restore(self, process: bytes) -> None:
        """Record that a process is a peer."""
        self._removed.pop(process, None)

    def vector(self, process: bytes) -> Vector:
        """Return the least that a process has; empty if it is unknown."""
        found = self._found.get(process)
        return found.vector if found else {}

    def drains(self, process: bytes) -> bool:
        """Return True if a process is about to end."""
        found = self._found.get(process)
        return found is not None and found.drains

    def joins(self, process: bytes) -> bool:
        """Return True if a process has not caught up yet; False if it is unknown."""
        found = self._found.get(process)
        return found is not None and found.joins

    def recent(self, since: float) -> int:
        """Return the number of processes that have sent a message since a time, have caught up and do not
        drain.
        """
        return sum(one.at >= since and not one.joins for one in self._counted())

    def confirmed(self, origin: bytes, copies: int) -> int:
        """Return the sequence up to which at least `copies` (1 or more) processes have the operations of an
        origin.
        """
        known = sorted((one.vector.get(origin, 0) for one in self._counted()), reverse=True)
        return known[copies - 1] if len(known) >= copies else 0

    def covering(self, vector: Mapping[bytes, int]) -> int:
        """Return the number of processes that have all operations of a version vector."""
        return sum(
            all(one.vector.get(origin, 0) >= sequence for origin, sequence in vector.items())
            for one in self._counted()
        )

    def least(self, processes: Iterable[bytes], vector: Mapping[bytes, int]) -> Vector:
        """Return the part of a version vector that all these processes have."""
        every = [self.vector(one) for one in processes]
        return {origin: min((one.get(origin, 0) for one in every), default=0) for origin in vector}

    def _counted(self) -> list[Contact]:
        return [one for id_, one in self._found.items() if not one.drains and id_ not in self._removed]
