"""A pod's assignment, which the hub sends: the pod's job, slot, incarnation and peers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from convoy_agents.pods.messages import MAX_INCARNATION, MAX_RANK
from convoy_agents.tracing import order as traces
from convoy_agents.tracing.order import TraceOrder
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint import replica_state

MAX_PROCESSES = 64
"""Maximum number of ranks of one pod."""
MAX_COMMAND = 160 * 1024
"""Maximum bytes of a command as JSON. The limit ensures that the whole assignment fits into one frame
(frames.py).
"""


_PATH = re.compile(r"/[!-~]{0,255}")
"""A path of a URL: printable ASCII characters without spaces."""


class AssignmentError(ValueError):
    """The hub's assignment is inconsistent. The error message describes the wrong value."""


@dataclass(frozen=True, slots=True)
class Member:
    """One slot of an incarnation, with the address of the agent on its node."""

    slot: int
    pod_uid: str
    node: str
    peer_address: str
    processes: int


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """The name of a node and the address of its agent."""

    node: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class StoreUse:
    """The settings by which a job stores some of its generations in a remote store."""

    name: str
    every_seconds: int
    keep_last: int
    keep_every_steps: int
    resume_uid: str = ""
    """Uid of the job from whose stored checkpoints this job starts. The uid is empty if this job starts
    without them.
    """
    resume_step: int = 0
    """Step of the stored checkpoint from which the job starts; 0 for the newest checkpoint."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The place of the Prometheus metrics of a pod's program."""

    address: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class MemoryTiers:
    """The settings of a job's checkpoints in the memory of nodes and in a remote store."""

    copies: int
    """Number of copies of each shard on other nodes."""
    limit: int
    """Maximum bytes of checkpoints of the job on one node. With 0, only the node's own limit applies."""
    hosts: tuple[NodeAddress, ...] = ()
    """Nodes that keep the copies of this slot's shards. If the cluster has too few nodes, there are fewer
    than `copies`.
    """
    holders: tuple[NodeAddress, ...] = ()
    """Nodes that hold checkpoints of the job but run no slot of this incarnation. Set only for slot 0."""
    store: StoreUse | None = None
    interval_seconds: int = 0
    """Seconds between two saves. With 0, the interval in the pod's environment applies. Set only for slot
    0.
    """
    by_default: bool = False
    """True if the job has no tiers in its spec. It then gets at most half of the node's memory, and gives way
    to other jobs.
    """


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The settings of the state that a replica of a ServingJob saves to the memory of nodes."""

    uid: str
    """Name of the state among agents (convoy_controllers.checkpoint.replica_state)."""
    limit: int
    """Maximum bytes of all states of the job on one node. With 0, only the node's own limit applies."""
    hosts: tuple[NodeAddress, ...] = ()
    """Nodes that keep copies of the state."""
    holders: tuple[NodeAddress, ...] = ()
    """Other nodes with states of replicas of the same role and revision."""
    token: str = field(default="", repr=False)
    """The slot token whose job is `uid`."""


_SECRETS = ("key", "job_key")
"""Fields that leave the agent only as files of the pod."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The hub's assignment of a pod to one slot in one incarnation of a job (hub.proto Assignment)."""

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
    """Members of the incarnation in slot order. Slot 0 and slots of a Strict job receive all members; other
    slots receive slot 0 only. Slot 0 needs all members because its agent coordinates commits.
    """
    strict: bool = False
    """True if the job has fencing `Strict`: this agent stops the ranks if its node is isolated
    (convoy_controllers.liveness.fence).
    """
    memory: MemoryTiers | None = None
    slot_token: str = ""
    """The slot token, which proves the assignment to other agents (wire/slot_tokens.py)."""
    slots: int = 0
    """Number of pods of the incarnation; 0 if the operator does not send the number."""
    key: bytes = field(default=b"", repr=False, compare=False)
    """Secret of the incarnation, for the pod's file. It is neither logged nor saved with the state."""
    keyed: bool = False
    """True if the pod's file has the key of this incarnation."""
    job_key: bytes = field(default=b"", repr=False, compare=False)
    """Secret of the job, for the pod's file. It is neither logged nor saved with the state."""
    job_keyed: bool = False
    """True if the pod's file has the key of the job."""

    trace: TraceOrder | None = None
    """The steps that ranks of the pod record; None if they record nothing now."""
    scrape: Scrape | None = None
    """The metrics to read; None if the program reports its requests itself, or has none."""
    replica_state: ReplicaState | None = None
    """The state of the replica. Set only for slot 0 of a replica that may save one."""

    @property
    def owner_uid(self) -> str:
        """Return the uid of the pod's job. For agents, each replica of a ServingJob and each Independent pod
        is a job of its own, and `job_uid` has the role and the number after the uid.
        """
        return self.job_uid.partition(".")[0]

    @property
    def ranks(self) -> range:
        """Return the global ranks of this pod."""
        return range(self.rank_offset, self.rank_offset + self.processes)

    @property
    def memory_limit(self) -> int:
        """Return the maximum bytes of checkpoints of the job on this node. With 0, only the node's own
        limit applies.
        """
        return self.memory.limit if self.memory else 0

    @property
    def resume_uid(self) -> str:
        """Return the uid of the job from whose stored checkpoints this job starts; empty if this job starts
        without them.
        """
        return self.memory.store.resume_uid if self.memory and self.memory.store else ""

    @property
    def interval_seconds(self) -> int:
        """Return the seconds between two saves. With 0, the interval in the pod's environment applies."""
        return self.memory.interval_seconds if self.memory else 0

    def of_state(self) -> Assignment | None:
        """Return the assignment under which the replica's state is kept: that of a job with one rank, which
        is rank 0 of this pod. Return None if the pod may save no state.
        """
        state = self.replica_state
        if state is None:
            return None
        return replace(
            self,
            job_uid=state.uid,
            processes=1,
            world_size=1,
            members=self.members[:1],
            slots=1,
            slot_token=state.token,
            memory=MemoryTiers(len(state.hosts), state.limit, state.hosts, state.holders),
        )

    def frame(self) -> dict[str, Any]:
        """Return the `assignment` frame for the launcher. Fields that only agents need are omitted."""
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
            "keyed": self.keyed,
            "jobKeyed": self.job_keyed,
            **({"trace": self.trace.frame()} if self.trace else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the assignment as plain data for the agent's state file. `from_json` reads it."""
        return {name: value for name, value in asdict(self).items() if name not in _SECRETS}


def from_wire(message: hub_pb2.Assignment) -> Assignment:
    """Convert the hub's message to an assignment. Raises AssignmentError if the message is inconsistent."""
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
        scrape=_scrape(message.scrape) if message.HasField("scrape") else None,
        key=message.key,
        keyed=bool(message.key),
        job_key=message.job_key,
        job_keyed=bool(message.job_key),
        replica_state=_replica_state(message.replica_state) if message.HasField("replica_state") else None,
        trace=traces.from_wire(message.trace) if message.HasField("trace") else None,
    )
    _check(assignment)
    return assignment


def from_json(data: Mapping[str, Any]) -> Assignment:
    """Convert the output of `Assignment.to_json` to an assignment. Raises TypeError, KeyError or
    AssignmentError for other data.
    """
    fields = dict(data)
    fields["command"] = tuple(fields["command"])
    fields["members"] = tuple(Member(**entry) for entry in fields["members"])
    if memory := fields.get("memory"):
        addresses = {
            name: tuple(NodeAddress(**entry) for entry in memory[name]) for name in ("hosts", "holders")
        }
        store = StoreUse(**memory["store"]) if memory.get("store") else None
        fields["memory"] = MemoryTiers(**{**memory, **addresses, "store": store})
    if scrape := fields.get("scrape"):
        fields["scrape"] = Scrape(**scrape)
    if order := fields.get("trace"):
        fields["trace"] = traces.from_json(order)
    if state := fields.get("replica_state"):
        places = {name: tuple(NodeAddress(**entry) for entry in state[name]) for name in ("hosts", "holders")}
        fields["replica_state"] = ReplicaState(**{**state, **places})
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
        message.by_default,
    )


def _replica_state(message: hub_pb2.ReplicaState) -> ReplicaState:
    return ReplicaState(
        message.uid,
        message.limit,
        tuple(NodeAddress(entry.node, entry.peer_address) for entry in message.hosts),
        tuple(NodeAddress(entry.node, entry.peer_address) for entry in message.holders),
        message.token,
    )


def _scrape(message: hub_pb2.Scrape) -> Scrape:
    return Scrape(message.address, message.port, message.path)


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
    if assignment.scrape is not None:
        _check_scrape(assignment.scrape)
    if assignment.trace is not None and (why := traces.problem(assignment.trace, assignment.ranks)):
        raise AssignmentError(f"trace: {why}")
    state = assignment.replica_state
    if state is not None and replica_state.parse(state.uid) is None:
        raise AssignmentError(f"{state.uid!r} is not the uid of a replica's state")
    if state is not None and assignment.slot:
        raise AssignmentError(f"slot {assignment.slot} may save no state of its replica; only slot 0 may")
    members, slot = assignment.members, assignment.slot
    if not members or [entry.slot for entry in members] != list(range(len(members))):
        raise AssignmentError("members are not in slot order starting at 0")
    if slot >= len(members) and (slot == 0 or assignment.strict):
        raise AssignmentError(f"slot {slot} is not among the {len(members)} members")
    if slot < len(members) and members[slot].pod_uid != assignment.pod_uid:
        raise AssignmentError(f"member {slot} is not this pod")


def _check_scrape(scrape: Scrape) -> None:
    try:
        address = ip_address(scrape.address)
    except ValueError as error:
        raise AssignmentError(f"scrape: {scrape.address!r} is not an IP address") from error
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        raise AssignmentError(f"scrape: {scrape.address} is not the address of a pod")
    if not 1 <= scrape.port <= 65535 or not _PATH.fullmatch(scrape.path):
        raise AssignmentError(f"scrape: {scrape.port}{scrape.path!r} is not a port and a path")
