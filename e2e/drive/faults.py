"""Faults of nodes and processes that only tests inject. Those of the registry are in perturbations.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node

_NAMED = """
for pid in /proc/[0-9]*; do
  [ "$(cat $pid/comm 2>/dev/null)" = "$1" ] && echo "${pid#/proc/}"
done
true
"""


def kill_processes(node: Node, name: str) -> None:
    """Send SIGKILL to all processes with this name, such as `convoy-agent` or `convoy-operator`."""
    found = node.run(["sh", "-c", _NAMED, "find", name]).split()
    if not found:
        raise AssertionError(f"no {name} runs on {node.name}")
    node.run(["kill", "-9", *found])


LOSS_PERCENT = 5
"""Percentage of incoming packets that `lossy_network` drops."""
PEER_PORT = 8472
"""Port on which agents receive copies from other agents."""
_TABLE = "inet convoy_fault"
# At the prerouting hook, the kernel has packets for the node and packets for the node's pods. So one rule
# drops both.
_ARRIVING = "{ type filter hook prerouting priority -300; }"


@contextmanager
def packet_loss(node: Node, which: str) -> Iterator[None]:
    """Drop the incoming packets of a node that match `which` while the block runs. The sender gets no
    error.

    `which` is a match expression of nft. Do not reboot the node while the block runs.
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
def limited_bandwidth(node: Node, rate: str) -> Iterator[None]:
    """Limit a node's outgoing traffic to `rate` with a token bucket (tc-tbf) while the block runs.

    A packet waits at most 0.4 s; when the queue is full, further packets are dropped.
    """
    bucket = ["root", "tbf", "rate", rate, "burst", "32768", "latency", "400ms"]
    node.run(["tc", "qdisc", "replace", "dev", "eth0", *bucket])
    try:
        yield
    finally:
        node.run(["tc", "qdisc", "delete", "dev", "eth0", "root"])


@contextmanager
def lossy_network(node: Node) -> Iterator[None]:
    """Drop LOSS_PERCENT of a node's incoming packets and limit its outgoing traffic to 20 Mbit/s while the
    block runs.
    """
    with packet_loss(node, f"numgen random mod 100 < {LOSS_PERCENT}"), limited_bandwidth(node, "20mbit"):
        yield


@contextmanager
def slow_disk(cluster: Cluster, node: Node, pod_uid: str, bytes_per_second: int) -> Iterator[None]:
    """Limit a pod's reads from the disk that holds the node's folders, while the block runs."""
    number = node.folder.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    known = Path("/sys/dev/block") / device
    if (known / "partition").exists():
        # The kernel limits whole disks only, so use the partition's disk.
        device = (known.resolve().parent / "dev").read_text().strip()
    cluster.cgroups.limit_reads(node.cgroup, pod_uid, device, bytes_per_second)
    try:
        yield
    finally:
        cluster.cgroups.limit_reads(node.cgroup, pod_uid, device, 0)


MEMORY_PROGRAM = """
import sys
print("ready", flush=True)
sys.stdin.readline()
eaten = bytearray(int(sys.argv[1]))
eaten[::4096] = b"1" * len(eaten[::4096])
print("full", flush=True)
sys.stdin.readline()
"""


@contextmanager
def memory_pressure(cluster: Cluster, node: Node, pod_uid: str, size: int) -> Iterator[None]:
    """Start a process that uses `size` bytes of a container's memory while the block runs.

    When the memory runs out, the kernel kills the largest process that the container itself started. For
    the container's own processes, the kubelet has raised oom_score_adj (to nearly 1000 in a Burstable
    container). The process started here keeps a lower value, so it survives.
    """
    argv = [sys.executable, "-I", "-S", "-c", MEMORY_PROGRAM, str(size)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdout.readline()
            cluster.cgroups.enter(node.cgroup, pod_uid, process.pid, "memory.limit_in_bytes")
            process.stdin.write("eat\n")
            process.stdin.flush()
            process.stdout.readline()
            yield
        finally:
            process.kill()


@contextmanager
def half_open_connections(node: Node) -> Iterator[None]:
    """Drop every packet that other agents send on connections they opened to a node's agent, while the
    block runs.

    The other agents still consider these connections open. Responses to this agent's own requests get
    through.
    """
    with packet_loss(node, f"tcp dport {PEER_PORT}"):
        yield
