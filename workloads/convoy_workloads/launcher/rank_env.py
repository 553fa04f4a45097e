"""The environment of a rank: what torchrun would set, and where Convoy's runtime finds things."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Assignment:
    """What the plan gave this pod for one incarnation."""

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

    @property
    def ranks(self) -> range:
        """The global ranks of this pod."""
        return range(self.rank_offset, self.rank_offset + self.processes)


def parse_assignment(message: Mapping[str, Any]) -> Assignment:
    """The assignment in an agent's message; KeyError, TypeError or ValueError when it is malformed."""
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
    )
    if not assignment.command:
        raise ValueError("the command is empty")
    if assignment.processes < 1 or assignment.ranks[-1] >= assignment.world:
        raise ValueError(f"ranks {assignment.ranks} do not fit a world of {assignment.world}")
    return assignment


def rank_environment(
    base: Mapping[str, str],
    assignment: Assignment,
    local_rank: int,
    cpus: int,
    interface: str,
    beat: str,
    library: str,
) -> dict[str, str]:
    """The variables of one rank on top of the container's (`base`).

    `cpus`: cores this container may use, shared by its ranks; `interface`: the network interface for gloo, or
    empty; `library`: the folder that holds Convoy's packages. What the user set stays, except what makes the
    rank a rank.
    """
    environment = dict(base)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, cpus // assignment.processes)))
    environment.setdefault("PYTHONUNBUFFERED", "1")
    environment.setdefault("PYTHONFAULTHANDLER", "1")
    if interface:
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
    path = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = library + (os.pathsep + path if path else "")
    environment.update(
        RANK=str(assignment.rank_offset + local_rank),
        WORLD_SIZE=str(assignment.world),
        LOCAL_RANK=str(local_rank),
        LOCAL_WORLD_SIZE=str(assignment.processes),
        GROUP_RANK=str(assignment.slot),
        MASTER_ADDR=assignment.master_addr,
        MASTER_PORT=str(assignment.master_port),
        CONVOY_INCARNATION=str(assignment.incarnation),
        CONVOY_JOB=assignment.job,
        CONVOY_JOB_UID=assignment.job_uid,
        CONVOY_ROLE=assignment.role,
        CONVOY_REPLICA=str(assignment.replica),
        CONVOY_HANG_SECONDS=f"{assignment.hang_seconds:g}",
        CONVOY_BEAT=beat,
    )
    return environment


def default_interface(route: str, ipv6_route: str = "") -> str:
    """The interface of the default route in /proc/net/route (or ipv6_route); empty without one.

    In a pod this is the interface of the pod's address. gloo would otherwise take whatever the host name
    resolves to.
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
    """Whole cores for this container: its affinity, capped by the quota of cgroup v2's `cpu.max`."""
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
