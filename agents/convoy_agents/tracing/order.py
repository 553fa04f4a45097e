"""The order by which ranks of a pod record a trace, and what became of their traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.wire import hub_pb2
from convoy_crds.trainingjob_trace import MAX_STEPS, file_name

MAX_BYTES = 32 * 2**20
"""Maximum bytes of one file. The agent holds one file of its node at a time in memory."""


@dataclass(frozen=True, slots=True)
class TraceOrder:
    """The steps that ranks of a pod record (hub.proto TraceOrder)."""

    recording: int
    attempt: int
    first: int
    count: int
    ranks: tuple[int, ...]
    """Global ranks of the pod that record."""
    store: str
    max_bytes: int

    @property
    def id(self) -> tuple[int, int]:
        """Return the recording and the attempt, which identify the order within an incarnation."""
        return self.recording, self.attempt

    def file_name(self, rank: int) -> str:
        """Return the name of a rank's file in the job's folder `traces` of the store."""
        return file_name(self.recording, rank)

    def frame(self) -> dict[str, Any]:
        """Return the order for the ranks of the pod."""
        return {
            "recording": self.recording,
            "attempt": self.attempt,
            "first": self.first,
            "count": self.count,
            "ranks": list(self.ranks),
            "maxBytes": self.max_bytes,
        }


@dataclass(frozen=True, slots=True)
class TraceResult:
    """Event: the trace of one rank is stored, or has failed."""

    incarnation: int
    rank: int
    order: tuple[int, int]
    """Recording and attempt."""
    failure: str = ""
    """Name of a TraceReport.Failure (hub.proto); empty if the trace is stored."""
    message: str = ""
    bytes: int = 0
    sha256: str = ""
    nodes: int = 0
    comm_bytes_per_step: int = 0
    exposed_communication_ratio: float = 0.0

    @property
    def stored(self) -> bool:
        """Return True if the trace is in the store."""
        return not self.failure

    def to_wire(self) -> hub_pb2.TraceReport:
        """Return the report for the hub."""
        states = hub_pb2.TraceReport.State
        failure = self.failure or "NOT_RECORDED"  # the wire's zero
        return hub_pb2.TraceReport(
            rank=self.rank,
            state=states.STORED if self.stored else states.FAILED,
            failure=hub_pb2.TraceReport.Failure.Value(failure),
            message=self.message,
            bytes=self.bytes,
            sha256=self.sha256,
            nodes=self.nodes,
            comm_bytes_per_step=self.comm_bytes_per_step,
            exposed_communication_ratio=self.exposed_communication_ratio,
        )


def from_wire(message: hub_pb2.TraceOrder) -> TraceOrder:
    """Convert the hub's message to an order."""
    return TraceOrder(
        message.recording,
        message.attempt,
        message.first,
        message.count,
        tuple(message.ranks),
        message.store,
        message.max_bytes,
    )


def from_json(data: Mapping[str, Any]) -> TraceOrder:
    """Convert the fields of an order in a state file to an order. Raises TypeError or KeyError for others."""
    return TraceOrder(**{**data, "ranks": tuple(data["ranks"])})


def problem(order: TraceOrder, ranks: range) -> str:
    """Return what is wrong with an order for a pod with these ranks; empty if nothing is."""
    if order.recording < 1 or order.first < 1 or not 1 <= order.count <= MAX_STEPS:
        return f"recording {order.recording} of {order.count} steps from step {order.first} on"
    if not order.ranks or any(rank not in ranks for rank in order.ranks):
        return f"ranks {list(order.ranks)[:8]} are not all in {ranks.start} to {ranks.stop - 1}"
    if not 1 <= order.max_bytes <= MAX_BYTES:
        return f"{order.max_bytes} bytes; a file may have 1 to {MAX_BYTES}"
    return "" if order.store else "no store"
