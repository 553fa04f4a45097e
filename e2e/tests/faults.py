"""Faults, as they happen to nodes and processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


LOSS_PERCENT = 5
"""Of the packets that arrive."""
PEER_PORT = 8472
"""Where agents take copies from one another."""
_TABLE = "inet convoy_fault"
# What arrives for the node's pods comes by here as well.
_ARRIVING = "{ type filter hook prerouting priority -300; }"


@contextmanager
def dropped(node: Node, which: str) -> Iterator[None]:
    """Meanwhile some of what arrives at a node is dropped, without a word to who sent it. `which`: as nft has
    it. The node is not rebooted meanwhile.
    """
    rules = (
        f"add table {_TABLE}; add chain {_TABLE} arriving {_ARRIVING};"
        f" add rule {_TABLE} arriving iifname eth0 {which} drop"
    )
    node.run(["nft", rules])
    try:
        yield
    finally:
        node.run(["nft", f"delete table {_TABLE}"])


@contextmanager
def poor_network(node: Node) -> Iterator[None]:
    """Meanwhile packets that arrive at a node get lost, and those that leave it queue for up to 0.4 s before
    a token bucket (tc-tbf) of 20 Mbit/s, and get lost where the queue is full.
    """
    bucket = ["root", "tbf", "rate", "20mbit", "burst", "32768", "latency", "400ms"]
    with dropped(node, f"numgen random mod 100 < {LOSS_PERCENT}"):
        node.run(["tc", "qdisc", "replace", "dev", "eth0", *bucket])
        try:
            yield
        finally:
            node.run(["tc", "qdisc", "delete", "dev", "eth0", "root"])


@contextmanager
def half_open(node: Node) -> Iterator[None]:
    """Meanwhile nothing reaches a node's agent of what other agents send to it on their own account: they
    believe to be connected still. What it asks of them is answered.
    """
    with dropped(node, f"tcp dport {PEER_PORT}"):
        yield
