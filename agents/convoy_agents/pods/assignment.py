"""A pod's assignment from the hub: its job, slot, incarnation and peers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from convoy_agents.pods.messages import MAX_INCARNATION, MAX_RANK
from convoy_agents.wire import hub_pb2

MAX_PROCESSES = 64
"""Maximum number of ranks of one pod."""
MAX_COMMAND = 160 * 1024
"""Maximum bytes of a command as JSON. The command and the rest of the assignment must fit into one frame."""


class AssignmentError(ValueError):
    """The hub's assignment is inconsistent. The message names the field."""


@dataclass(frozen=True, slots=True)
class Member:
    """One slot of the incarnation, and the address of its node's agent."""

    slot: int
    pod_uid: str
    node: str
    peer_address: str
    processes: int


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node and the address of its agent."""

    node: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class StoreUse:
    """The use of a remote store for some of the job's generations."""

    name: str
    every_seconds: int
    keep_last: int
    keep_every_steps: int
    resume_uid: str = ""
    """Uid of the job whose stored state this job starts from; empty for none."""
    resume_step: int = 0
    """Step of that state; 0 for the newest."""


@dataclass(frozen=True, slots=True)
class MemoryTiers:
    """The job's checkpoints in the memory of nodes, and in a remote store."""

    copies: int
    """Number of copies of each shard on other nodes."""
    limit: int
    """Maximum bytes of the job on one node; 0 for the node's own limit."""
    hosts: tuple[NodeAddress, ...] = ()
    """Nodes that keep the copies of this slot's shards. Fewer than `copies` if not enough nodes exist."""
    holders: tuple[NodeAddress, ...] = ()
    """For slot 0 only: nodes other than the members that hold checkpoints of the job."""
    store: StoreUse | None = None
    interval_seconds: int = 0
    """For slot 0 only: seconds between two saves; 0 for the interval in the pod's environment."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One slot in one incarnation of a job (hub.proto Assignment)."""

    pod_uid: str
    job_uid: str
    job: str
    incarnation: int
    slot: int
    rank_offset: int
    processes: int
    world_size: int
    master_addr: str
    master_port: int
    hang_seconds: int
    role: str
    replica: int
    command: tuple[str, ...]
    members: tuple[Member, ...]
    """Members in slot order. Slot 0, which coordinates commits, and slots of a Strict job know all members.
    Other slots know only slot 0.
    """
    strict: bool = False
    """Fencing `Strict`: this agent stops the ranks if its node is isolated
    (convoy_controllers.liveness.fence).
    """
    memory: MemoryTiers | None = None
    slot_token: str = ""
    """Proof of the assignment for other agents (wire/slot_tokens.py)."""
    slots: int = 0
    """Number of pods of the incarnation; 0 if the operator does not send it."""

    @property
    def ranks(self) -> range:
        """The global ranks of this pod."""
        return range(self.rank_offset, self.rank_offset + self.processes)

    @property
    def memory_limit(self) -> int:
        """Maximum bytes of the job on this node; 0 for the node's own limit."""
        return self.memory.limit if self.memory else 0

    @property
    def resume_uid(self) -> str:
        """Uid of the job whose stored state this job starts from; empty for none."""
        return self.memory.store.resume_uid if self.memory and self.memory.store else ""

    @property
    def interval_seconds(self) -> int:
        """Seconds between two saves; 0 for the interval in the pod's environment."""
        return self.memory.interval_seconds if self.memory else 0

    def frame(self) -> dict[str, Any]:
        """Return the launcher's frame, without the fields that only agents need."""
        return {
            "type": "assignment",
            "incarnation": self.incarnation,
            "slot": self.slot,
            "rankOffset": self.rank_offset,
            "processes": self.processes,
            "worldSize": self.world_size,
            "masterAddr": self.master_addr,
            "masterPort": self.master_port,
            "hangSeconds": self.hang_seconds,
            "command": list(self.command),
            "role": self.role,
            "replica": self.replica,
            "job": self.job,
            "jobUid": self.job_uid,
            "slots": self.slots,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the agent's state file."""
        return asdict(self)


def from_wire(message: hub_pb2.Assignment) -> Assignment:
    """Convert and validate the hub's message. AssignmentError if it is inconsistent."""
    assignment = Assignment(
        pod_uid=message.pod_uid,
        job_uid=message.job_uid,
        job=message.job,
        incarnation=message.incarnation,
        slot=message.slot,
        rank_offset=message.rank_offset,
        processes=message.processes,
        world_size=message.world_size,
        master_addr=message.master_addr,
        master_port=message.master_port,
        hang_seconds=message.hang_seconds,
        role=message.role,
        replica=message.replica,
        command=tuple(message.command),
        members=tuple(
            Member(entry.slot, entry.pod_uid, entry.node, entry.peer_address, entry.processes)
            for entry in message.members
        ),
        strict=message.strict,
        memory=_memory(message.memory) if message.HasField("memory") else None,
        slot_token=message.slot_token,
        slots=message.slots,
    )
    _check(assignment)
    return assignment


def from_json(data: Mapping[str, Any]) -> Assignment:
    """Read the output of `to_json`. TypeError, KeyError or AssignmentError for other data."""
    fields = dict(data)
    fields["command"] = tuple(fields["command"])
    fields["members"] = tuple(Member(**entry) for entry in fields["members"])
    if memory := fields.get("memory"):
        addresses = {
            name: tuple(NodeAddress(**entry) for entry in memory[name]) for name in ("hosts", "holders")
        }
        store = StoreUse(**memory["store"]) if memory.get("store") else None
        fields["memory"] = MemoryTiers(**{**memory, **addresses, "store": store})
    assignment = Assignment(**fields)
    _check(assignment)
    return assignment


def _memory(message: hub_pb2.MemoryTiers) -> MemoryTiers:
    return MemoryTiers(
        message.copies,
        message.limit,
        tuple(NodeAddress(entry.node, entry.peer_address) for entry in message.hosts),
        tuple(NodeAddress(entry.node, entry.peer_address) for entry in message.holders),
        _store(message.store) if message.HasField("store") else None,
        message.interval_seconds,
    )


def _store(message: hub_pb2.StoreUse) -> StoreUse:
    return StoreUse(
        message.name,
        message.every_seconds,
        max(1, message.keep_last),
        message.keep_every_steps,
        message.resume_uid,
        message.resume_step,
    )


def _check(assignment: Assignment) -> None:
    if not 1 <= assignment.incarnation <= MAX_INCARNATION:
        raise AssignmentError(f"incarnation {assignment.incarnation} is not in 1 to {MAX_INCARNATION}")
    if not 1 <= assignment.processes <= MAX_PROCESSES:
        raise AssignmentError(f"{assignment.processes} processes; a pod has 1 to {MAX_PROCESSES}")
    if not assignment.ranks.stop <= assignment.world_size <= MAX_RANK:
        raise AssignmentError(
            f"ranks up to {assignment.ranks.stop} do not fit a world size of {assignment.world_size} "
            f"(maximum {MAX_RANK})"
        )
    size = len(json.dumps(assignment.command, ensure_ascii=False).encode())
    if size > MAX_COMMAND:
        raise AssignmentError(f"the command has {size} bytes; the maximum is {MAX_COMMAND}")
    members, slot = assignment.members, assignment.slot
    if not members or [entry.slot for entry in members] != list(range(len(members))):
        raise AssignmentError("members are not in slot order starting at 0")
    if slot >= len(members) and (slot == 0 or assignment.strict):
        raise AssignmentError(f"slot {slot} is not among the {len(members)} members")
    if slot < len(members) and members[slot].pod_uid != assignment.pod_uid:
        raise AssignmentError(f"member {slot} is not this pod")
