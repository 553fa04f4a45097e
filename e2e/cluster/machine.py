"""Resources and capabilities of this machine."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True)
class Share:
    """The part of the machine's resources that one node reserves, so that it does not offer them to pods."""

    reserved_millicores: int
    reserved_mib: int


def share(nodes: int, *, cores: int, mib: int, control_plane_mib: int = 2048) -> Share:
    """Divide the machine among `nodes` nodes. Return the resources that each node must reserve.

    The nodes together offer the machine's resources once, without the control plane's memory. Each kubelet
    sees the whole machine, so it must reserve everything outside its own part.
    """
    offered_cores = cores * 1000 // nodes
    offered_mib = max(512, (mib - control_plane_mib) // nodes)
    return Share(cores * 1000 - offered_cores, max(0, mib - offered_mib))


def memory_mib() -> int:
    """Return the machine's memory in MiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    raise ClusterError("/proc/meminfo has no MemTotal")


def cores() -> int:
    """Return the number of processors of the machine."""
    return os.cpu_count() or 1


def may_lower_oom_score() -> bool:
    """Return True if this process has CAP_SYS_RESOURCE, which containers need to lower oom_score_adj."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def cni_folder() -> Path:
    """Return the folder of the CNI plugins."""
    for folder in ("/usr/lib/cni", "/opt/cni/bin"):
        if Path(folder, "bridge").exists():
            return Path(folder)
    raise ClusterError(
        "no CNI plugins (package containernetworking-plugins) on this machine; run `make host`"
    )


def require_root_and_tools() -> None:
    """Raise ClusterError if a required program is missing or this process does not run as root. The message
    lists all that is missing.
    """
    missing = [
        tool for tool in ("runc", "nft", "ip", "nsenter", "unshare", "mount") if not shutil.which(tool)
    ]
    problems = [f"programs missing: {', '.join(missing)} (run `make host`)"] if missing else []
    if os.geteuid() != 0:
        problems.append("nodes need root: run this as root or with sudo")
    if problems:
        raise ClusterError("; ".join(problems))
