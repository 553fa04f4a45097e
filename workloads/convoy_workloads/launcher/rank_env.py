"""Builds the environment of a rank: the variables that torchrun would set, and the variables of Convoy's
runtime.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convoy_commands.references import substitute

if TYPE_CHECKING:
    from convoy_commands.launch import Launch


@dataclass(frozen=True)
class Assignment:
    """The part of an incarnation's plan that concerns this pod, as the agent sends it."""

    incarnation: int
    slot: int
    rank_offset: int
    processes: int
    world: int
    master_addr: str
    master_port: int
    hang_seconds: float
    command: tuple[str, ...]
    job: str = ""
    job_uid: str = ""
    role: str = ""
    replica: int = 0
    slots: int = 0
    """Number of pods in the incarnation; 0 if the agent has not sent it."""
    keyed: bool = False
    """True if the agent has written the incarnation's key to a file beside the socket."""
    job_keyed: bool = False
    """True if the agent has written the job's key to a file beside the socket."""
    trace: str = ""
    """The order for a trace, as JSON; empty if the ranks record nothing yet."""

    @property
    def pods(self) -> int:
        """Return the number of pods in the incarnation. If the agent has not sent it, assume that every pod
        has as many ranks as this pod.
        """
        return self.slots or self.world // self.processes

    @property
    def ranks(self) -> range:
        """Return the global ranks of this pod."""
        return range(self.rank_offset, self.rank_offset + self.processes)


@dataclass(frozen=True)
class Container:
    """The container that the ranks of a pod share."""

    cpus: int
    """Number of cores that the container may use."""
    interface: str
    """Network interface for gloo; empty if gloo itself must choose."""
    library: str
    """Path of the folder with Convoy's packages."""


def parse_assignment(message: Mapping[str, Any]) -> Assignment:
    """Return the assignment in an agent's message. Raises KeyError, TypeError or ValueError if the message
    is malformed.
    """
    assignment = Assignment(
        incarnation=int(message["incarnation"]),
        slot=int(message["slot"]),
        rank_offset=int(message["rankOffset"]),
        processes=int(message["processes"]),
        world=int(message["worldSize"]),
        master_addr=str(message["masterAddr"]),
        master_port=int(message["masterPort"]),
        hang_seconds=float(message.get("hangSeconds") or 600),
        command=tuple(str(word) for word in message["command"]),
        job=str(message.get("job", "")),
        job_uid=str(message.get("jobUid", "")),
        role=str(message.get("role", "")),
        replica=int(message.get("replica", 0)),
        slots=int(message.get("slots", 0)),
        keyed=message.get("keyed") is True,
        job_keyed=message.get("jobKeyed") is True,
        trace=json.dumps(message["trace"]) if message.get("trace") else "",
    )
    if not assignment.command:
        raise ValueError("the command is empty")
    if assignment.processes < 1 or assignment.ranks[-1] >= assignment.world:
        raise ValueError(
            f"{assignment.processes} ranks from rank {assignment.rank_offset} on do not fit a world size of "
            f"{assignment.world}"
        )
    return assignment


def common_environment(base: Mapping[str, str], library: str) -> dict[str, str]:
    """Return the environment that every interpreter in the pod starts with, including the zygote."""
    environment = dict(base)
    environment.setdefault("PYTHONUNBUFFERED", "1")
    environment.setdefault("PYTHONFAULTHANDLER", "1")
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    path = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = library + (os.pathsep + path if path else "")
    return environment


def rank_environment(
    base: Mapping[str, str],
    assignment: Assignment,
    local_rank: int,
    container: Container,
    heartbeat_path: str,
    launch: Launch | None = None,
) -> dict[str, str]:
    """Return the environment of one rank: the container's environment `base` with the rank's own variables.

    `heartbeat_path` is the path of the rank's heartbeat file. `launch` is the command line of the launcher
    that Convoy replaces.

    A variable that the user has set is kept, unless it defines the rank's place in the job. If the value of
    another variable refers to such a variable, for example by `$(RANK)`, the reference is replaced by the
    rank's own value.
    """
    own = placement(assignment, local_rank)
    environment = {
        name: value if name.startswith("CONVOY_") else substitute(value, own)
        for name, value in common_environment(base, container.library).items()
    }
    environment.setdefault("OMP_NUM_THREADS", str(max(1, container.cpus // assignment.processes)))
    if container.interface:
        environment.setdefault("GLOO_SOCKET_IFNAME", container.interface)
    environment.update(
        own,
        CONVOY_HANG_SECONDS=f"{assignment.hang_seconds:g}",
        CONVOY_HEARTBEAT=heartbeat_path,
        CONVOY_TRACE=assignment.trace,
    )
    if socket := base.get("CONVOY_SOCKET"):
        files = {"CONVOY_KEY_FILE": assignment.keyed and "incarnation.key"}
        files["CONVOY_JOB_KEY_FILE"] = assignment.job_keyed and "job.key"
        files["CONVOY_NOTICE_FILE"] = "notice.json"
        environment |= {name: str(Path(socket).with_name(file)) for name, file in files.items() if file}
    if launch is not None:
        environment.update(_launcher_variables(launch, assignment, local_rank, base))
    return environment


def placement(assignment: Assignment, local_rank: int) -> dict[str, str]:
    """Return the variables that define the rank's place in the job. The kubelet cannot expand references to
    them, because it does not know their values.
    """
    return {
        **_group(assignment, local_rank),
        **_elastic(assignment),
        **_nested(assignment, local_rank),
        "CONVOY_INCARNATION": str(assignment.incarnation),
        "CONVOY_JOB": assignment.job,
        "CONVOY_JOB_UID": assignment.job_uid,
        "CONVOY_ROLE": assignment.role,
        "CONVOY_REPLICA": str(assignment.replica),
    }


def _group(assignment: Assignment, local_rank: int) -> dict[str, str]:
    """Return the variables that define the rank's place in the process group."""
    rank, world = str(assignment.rank_offset + local_rank), str(assignment.world)
    return {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(assignment.processes),
        "GROUP_RANK": str(assignment.slot),
        "GROUP_WORLD_SIZE": str(assignment.pods),
        # torchrun gives all ranks the same role, although the pods may have different roles.
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": assignment.master_addr,
        "MASTER_PORT": str(assignment.master_port),
    }


def _elastic(assignment: Assignment) -> dict[str, str]:
    """Return the variables that torch's elastic agent sets, so that
    `torch.distributed.is_torchelastic_launched()` is True.
    """
    return {
        "TORCHELASTIC_RUN_ID": assignment.job_uid or "none",
        "TORCHELASTIC_RESTART_COUNT": str(assignment.incarnation - 1),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # There is no elastic agent with a store, so rank 0 itself serves the store at MASTER_PORT.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _nested(assignment: Assignment, local_rank: int) -> dict[str, str]:
    """Return the default options for a torchrun that the command itself starts, for example in a shell.

    Each rank may start such a torchrun. It counts as one node with the rank's number, so that the torchruns
    of all ranks form one group.
    """
    return {
        "PET_NNODES": str(assignment.world),
        "PET_NODE_RANK": str(assignment.rank_offset + local_rank),
        "PET_MASTER_ADDR": assignment.master_addr,
        "PET_MASTER_PORT": str(assignment.master_port),
        "PET_RDZV_ID": assignment.job_uid or "none",
    }


def _launcher_variables(
    launch: Launch, assignment: Assignment, local_rank: int, base: Mapping[str, str]
) -> dict[str, str]:
    """Return the rank's variables that depend on the options of the launcher that Convoy replaces."""
    if launch.launcher == "deepspeed":
        return {
            "CROSS_RANK": str(assignment.slot),
            "CROSS_SIZE": str(assignment.pods),
            "LOCAL_SIZE": str(assignment.processes),
        }
    values = launch.values
    found = {"ROLE_NAME": values["role"] or "default"}
    if values["rdzv_id"]:
        found["TORCHELASTIC_RUN_ID"] = values["rdzv_id"]
    if values["max_restarts"] is not None:
        found["TORCHELASTIC_MAX_RESTARTS"] = str(values["max_restarts"])
    if values["virtual_local_rank"]:
        devices = [device.strip() for device in base.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        visible = devices[local_rank] if local_rank < len(devices) and devices[0] else str(local_rank)
        found |= {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": visible}
    return found


def default_interface(route: str, ipv6_route: str = "") -> str:
    """Return the network interface of the default route in /proc/net/route or ipv6_route; an empty text if
    there is no default route.

    In a pod, this interface has the pod's address. If no interface is given, gloo uses the address to which
    the host name resolves.
    """
    for line in route.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000":
            return fields[0]
    for line in ipv6_route.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[0] == "0" * 32 and fields[1] == "00" and fields[9] != "lo":
            return fields[9]
    return ""


def available_cpus(affinity: int, cpu_max: str) -> int:
    """Return the number of whole cores for this container. It is the number of cores in the CPU affinity,
    limited by the quota in `cpu.max` of cgroup v2.
    """
    quota = _quota(cpu_max)
    return max(1, affinity if quota is None else min(affinity, int(quota)))


def _quota(cpu_max: str) -> float | None:
    fields = cpu_max.split()
    if len(fields) != 2 or fields[0] == "max":
        return None
    try:
        return int(fields[0]) / int(fields[1])
    except (ValueError, ZeroDivisionError):
        return None
