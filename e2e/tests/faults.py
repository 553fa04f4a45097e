"""Faults, as they happen to nodes and processes."""

from __future__ import annotations

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node

_FIND = """
for pid in /proc/[0-9]*; do
  if [ "$(cat $pid/comm 2>/dev/null)" = "rank-$1" ] && grep -q "$2" $pid/cgroup 2>/dev/null; then
    echo "${pid#/proc/}"
  fi
done
"""


def rank_pid(cluster: Cluster, node: str, pod_uid: str, rank: int) -> int:
    """The process of a rank, as its node numbers processes."""
    found = cluster.node(node).run(["sh", "-c", _FIND, "find", str(rank), pod_uid]).split()
    if len(found) != 1:
        raise AssertionError(f"rank {rank} on {node} is {found}")
    return int(found[0])


def kill_rank(cluster: Cluster, node: str, pod_uid: str, rank: int) -> None:
    """SIGKILL to a rank."""
    cluster.node(node).run(["kill", "-9", str(rank_pid(cluster, node, pod_uid, rank))])


_NAMED = """
for pid in /proc/[0-9]*; do
  [ "$(cat $pid/comm 2>/dev/null)" = "$1" ] && echo "${pid#/proc/}"
done
true
"""


def kill_named(node: Node, name: str) -> None:
    """SIGKILL to the processes of a name: `convoy-agent`, `convoy-operator`."""
    found = node.run(["sh", "-c", _NAMED, "find", name]).split()
    if not found:
        raise AssertionError(f"no {name} runs on {node.name}")
    node.run(["kill", "-9", *found])
