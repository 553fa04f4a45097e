"""Finds traces of jobs and pods on nodes: mounts, cgroups, processes and files of the agent."""

from __future__ import annotations

from collections.abc import Collection

from e2e.cluster.cluster import Cluster

_SCRIPT = """
cat /proc/mounts | sed 's/^/mounts /'
find /sys/fs/cgroup -type d 2>/dev/null | sed 's/^/cgroups /'
cat /run/convoy/state/*.json 2>/dev/null | sed 's/^/agent /'
for pid in /proc/[0-9]*; do sed "s|^|processes |" $pid/cgroup 2>/dev/null; done
true
"""


def traces(cluster: Cluster, uids: Collection[str]) -> dict[str, list[str]]:
    """Return what remains of these uids on the nodes: mounts, cgroups, processes and state files of the
    agent.

    The mounts include the memory for checkpoints.
    """
    found: dict[str, list[str]] = {"mounts": [], "cgroups": [], "processes": [], "agent": []}
    names = {name for uid in uids for name in (uid, uid.replace("-", "_"))}
    for node in cluster.nodes:
        for line in node.run(["sh", "-c", _SCRIPT]).splitlines():
            kind, _, rest = line.partition(" ")
            if kind in found and any(name in rest for name in names):
                found[kind].append(f"{node.name} {rest[:120]}")
    return found
