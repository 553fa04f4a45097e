"""Measures how closely faults on pods achieve the magnitude that was asked.

A stand-in for a pod on this machine has what faults change: control groups, a network namespace, and a volume
in memory. The code of the node agent injects the faults.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from convoy_agents.faults.fault import Fault, Surroundings, Target
from convoy_agents.faults.injector import KINDS, TICK_SECONDS
from convoy_agents.faults.pod_processes import NodeFolders
from convoy_agents.faults.record import Order, Record
from convoy_crds.perturbations import PerturbationKind, perturbation_type
from convoy_workloads.bench.figures import Figures, Metric
from e2e.cluster.cgroups import Cgroups
from e2e.cluster.run import run

CORES = 0.5
"""Processors to which the stand-in is limited, so that other programs of the machine disturb it little."""
SECONDS = 5.0
"""Seconds for which a fault is in effect."""
MAX_SECONDS = 60.0
VOLUME_MIB = 64
TOLERANCES = {
    PerturbationKind.SLOW_RANK: 10.0,
    PerturbationKind.TENANT: 10.0,
    PerturbationKind.LINK_LIMIT: 5.0,
    PerturbationKind.FULL_DISK: 1.0,
    PerturbationKind.KILL_RANK: 0.0,
}
"""Largest deviation of the achieved from the asked magnitude, in percent."""
MAGNITUDES = {
    PerturbationKind.SLOW_RANK: (2.0, 4.0, 8.0),
    PerturbationKind.TENANT: (0.3, 0.6),
    PerturbationKind.LINK_LIMIT: (5.0, 20.0, 200.0),
    PerturbationKind.FULL_DISK: (0.5, 0.9, 1.0),
    # The last one, because nobody restarts the rank of the stand-in.
    PerturbationKind.KILL_RANK: (1.0,),
}
_NEAR, _FAR, _PORT = "198.18.251.1", "198.18.251.2", 7799
_RANK = """
open("/proc/self/comm", "w").write("rank-0")
print("ready", flush=True)
while True:
    pass
"""
_SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    until = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < until:
        peer.sendall(bytes(2**16))
"""


@dataclass(frozen=True)
class StandIn:
    """A process with the surroundings of a pod's rank."""

    uid: str
    pid: int
    around: Surroundings

    @property
    def target(self) -> Target:
        """The target of a fault."""
        return Target(self.uid, (self.uid,), first_rank=0, processes=1)

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Send as fast as the link allows while the block runs."""
        with socket.create_server((_NEAR, _PORT)) as server:
            threading.Thread(target=_receive, args=(server,), daemon=True).start()
            inside = ["nsenter", f"--net=/proc/{self.pid}/ns/net", sys.executable, "-c", _SEND]
            sender = subprocess.Popen([*inside, _NEAR, str(_PORT), str(MAX_SECONDS)])
            try:
                yield
            finally:
                sender.kill()
                sender.wait()


def perturbations(found: Figures) -> None:
    """Add a row for each kind and magnitude: the deviation of the achieved from the asked magnitude."""
    if os.geteuid():
        raise RuntimeError("control groups, mounts and namespaces need root")
    with _stand_in() as pod:
        for kind, magnitudes in MAGNITUDES.items():
            for asked in magnitudes:
                achieved = _achieved(pod, kind, asked)
                unit = perturbation_type(kind).unit
                name = f"{kind}, asked {asked:g} {unit}: deviation of the achieved magnitude"
                spread = f"achieved {achieved:.4g} {unit}" if achieved is not None else ""
                metric = Metric(name, "percent", TOLERANCES[kind], spread=spread)
                found.add(metric, None if achieved is None else 100 * abs(achieved / asked - 1))


def _achieved(pod: StandIn, kind: PerturbationKind, asked: float) -> float | None:
    order = Order(f"bench-{pod.pid}", pod.uid, "", (), kind.value, asked, MAX_SECONDS)
    fault = KINDS[kind.value](Record(order), pod.around)
    sending = pod.sending() if kind is PerturbationKind.LINK_LIMIT else contextlib.nullcontext()
    fault.start(pod.target)
    try:
        with sending:
            _keep(fault, pod.target)
    finally:
        fault.undo()
    return fault.record.achieved


def _keep(fault: Fault, target: Target) -> None:
    """Keep a fault in effect for SECONDS."""
    until = 0.0
    while not until or time.monotonic() < until:
        fault.keep(target)
        if fault.active and not until:
            until = time.monotonic() + SECONDS
        time.sleep(TICK_SECONDS)


@contextlib.contextmanager
def _stand_in() -> Iterator[StandIn]:
    uid, cgroups = f"bench-{os.getpid()}", Cgroups.detect()
    top = f"convoy-{uid}"
    group = f"{top}/kubepods/pod{uid}/main"
    with contextlib.ExitStack() as stack:
        kubelet = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rank = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", _RANK], stdout=subprocess.PIPE, text=True
        )
        # The last clean-up: a group can be removed when no process is in it.
        stack.callback(cgroups.remove, top)
        stack.callback(_end(rank))
        if rank.stdout is None or rank.stdout.readline() != "ready\n":
            raise RuntimeError("no network namespace can be created here")
        cgroups.create(group)
        for mount in cgroups.mounts:
            (mount / group / "cgroup.procs").write_text(str(rank.pid))
        cgroups.throttle(cgroups.cpu / group, CORES)
        _connect(rank.pid)
        volume = kubelet / "pods" / uid / "volumes/kubernetes.io~empty-dir/cache"
        volume.mkdir(parents=True)
        run(["mount", "-t", "tmpfs", "-o", f"size={VOLUME_MIB}m", "tmpfs", str(volume)])
        stack.callback(run, ["umount", str(volume)])
        node = NodeFolders(Path("/sys/fs/cgroup"), Path("/proc"))
        yield StandIn(uid, rank.pid, Surroundings(node, kubelet, lambda record: None))


def _connect(pid: int) -> None:
    """Connect a network namespace with the machine. The kernel removes the link with the namespace."""
    near, inside = f"cvp{pid}", ["nsenter", f"--net=/proc/{pid}/ns/net"]
    run(["ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", str(pid)])
    run(["ip", "addr", "add", f"{_NEAR}/30", "dev", near])
    run(["ip", "link", "set", near, "up"])
    run([*inside, "ip", "addr", "add", f"{_FAR}/30", "dev", "eth0"])
    run([*inside, "ip", "link", "set", "eth0", "up"])


def _end(process: subprocess.Popen[str]) -> Callable[[], None]:
    def end() -> None:
        process.kill()
        process.wait()

    return end


def _receive(server: socket.socket) -> None:
    with contextlib.suppress(OSError), server.accept()[0] as peer:
        while peer.recv(2**16):
            pass
