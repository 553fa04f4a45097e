"""A node of a local cluster. Tests can start, crash and reboot it, cut it off the network, and throttle its
pods.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.cluster import files, machine
from e2e.cluster.errors import ClusterError
from e2e.cluster.node_config import CONTAINERD_SOCKET, NodeConfig
from e2e.cluster.processes import ProcessId, end, identify, release, spawn
from e2e.cluster.run import Input, run, tail, wait_for
from e2e.cluster.state import NodeRecord

if TYPE_CHECKING:
    from e2e.cluster.cluster import Cluster

INIT = Path(__file__).with_name("node_init.py")


class Node:
    """A node of a cluster, by name. Methods that change the node hold the cluster's lock."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.folder = cluster.folder / "nodes" / name

    @property
    def record(self) -> NodeRecord:
        """The node's entry in the state file. Raises ClusterError if there is none."""
        try:
            return self.cluster.state().nodes[self.name]
        except KeyError:
            known = ", ".join(sorted(self.cluster.state().nodes)) or "none"
            raise ClusterError(
                f"cluster {self.cluster.name} has no node {self.name}; it has: {known}"
            ) from None

    @property
    def address(self) -> str:
        """The node's IPv4 address."""
        return self.cluster.addresses.node(self.record.index)

    @property
    def cgroup(self) -> str:
        """Path of the node's control group, relative to each hierarchy's mount point."""
        return f"{self.cluster.cgroup}/{self.name}"

    @property
    def process(self) -> ProcessId | None:
        """The node's first process, or None while the node is down."""
        found = self.cluster.state().processes.get(f"node/{self.name}")
        return found if found and found.alive else None

    @property
    def pid(self) -> int:
        """Pid of the node's first process on the machine. Raises ClusterError while the node is down."""
        if self.process is None:
            raise ClusterError(f"node {self.name} is down; `node reboot {self.name}` starts it")
        return self.process.pid

    @property
    def alive(self) -> bool:
        """True if the node runs. Kubernetes may still report it as not Ready."""
        return self.process is not None

    def log(self, component: str) -> Path:
        """Return the log's path of `containerd`, `kubelet`, `kube-proxy` or the node's first process
        (`init`).
        """
        if component == "init":
            return self.folder / "init.log"
        return self.folder / "var" / "log" / f"{component}.log"

    # ---- starting -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Write the node's configuration, keys and image store. Call this once for each node."""
        cluster, config = self.cluster, self.folder / "config"
        authority = cluster.control_plane.authority()
        rendered = NodeConfig(
            name=self.name,
            index=self.record.index,
            addresses=cluster.addresses,
            config=config,
            authority=authority.pair.cert,
            cgroup=self.cgroup,
            cgroup_version=cluster.cgroups.version,
            share=machine.share(
                int(cluster.state().options["nodes"]), cores=machine.cores(), mib=machine.memory_mib()
            ),
            may_lower_oom_score=machine.may_lower_oom_score(),
            cni=machine.cni_folder(),
            runc=Path(shutil.which("runc") or "/usr/sbin/runc"),
        ).files()
        for file, text in rendered.items():
            files.write(config / file, text)
        pair = authority.issue(
            f"kubelet-{self.name}",
            f"system:node:{self.name}",
            organizations=["system:nodes"],
            names=[self.name],
            addresses=[self.address],
        )
        files.write(config / "kubelet.crt", pair.cert.read_bytes())
        files.write(config / "kubelet.key", pair.key.read_bytes(), mode=0o600)
        cluster.control_plane.write_config(
            config / "kubelet.kubeconfig", authority, pair, f"system:node:{self.name}"
        )
        shutil.copy2(cluster.folder / "config" / "kube-proxy.kubeconfig", config / "kube-proxy.kubeconfig")
        files.write(config / "node.json", json.dumps(self._description(rendered), indent=1))

    def _description(self, rendered: dict[str, str]) -> dict[str, object]:
        """Return the configuration that node_init.py reads."""
        cluster, config, binaries = self.cluster, self.folder / "config", self.cluster.binaries
        # Like a real machine's id, this stays the same while the node exists and differs from every other
        # node's id.
        machine_id = hashlib.sha256(f"{cluster.identity}/{self.name}/{uuid.uuid4()}".encode()).hexdigest()[
            :32
        ]
        hosts = f"127.0.0.1 localhost\n::1 localhost\n{self.address} {self.name}\n"
        kubelet = [
            str(binaries / "kubelet"),
            f"--config={config}/kubelet.json",
            f"--kubeconfig={config}/kubelet.kubeconfig",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        ]
        return {
            "name": self.name,
            "folder": str(self.folder),
            "binaries": str(binaries),
            "keep": [
                str(path) for path in (cluster.folder, binaries.parent, files.cache_root() / "templates")
            ],
            "etc": {
                "machine-id": machine_id + "\n",
                "hostname": self.name + "\n",
                "hosts": hosts,
                "resolv.conf": rendered["resolv.conf"],
                "cni/net.d/10-convoy.conflist": rendered["10-convoy.conflist"],
            },
            "commands": {
                "containerd": [str(binaries / "containerd"), f"--config={config}/containerd.toml"],
                "kubelet": kubelet,
                "kube-proxy": [str(binaries / "kube-proxy"), f"--config={config}/kube-proxy.json"],
            },
        }

    def start(self) -> None:
        """Start the node's processes and connect its network. Returns before the kubelet is ready."""
        cluster = self.cluster
        cluster.cgroups.remove(self.cgroup)
        cluster.cgroups.create(self.cgroup)
        init = spawn(
            ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--",
             sys.executable, "-I", "-S", INIT, self.folder / "config" / "node.json"],
            identity=cluster.identity, log=self.log("init"), stdin=subprocess.PIPE,
        )  # fmt: skip
        assert init.stdin is not None
        try:
            first = self._first_process(init)
            with cluster.changing() as state:
                state.processes[f"node/{self.name}"] = first
                state.nodes[self.name].cut = False
            cluster.network.connect(self.record.index, first.pid)
            init.stdin.write(b"connected\n")
            init.stdin.flush()
        except BrokenPipeError:
            raise ClusterError(f"node {self.name} did not start:\n{tail(self.log('init'))}") from None
        finally:
            init.stdin.close()
            release(init)

    def _first_process(self, parent: subprocess.Popen[bytes]) -> ProcessId:
        """Wait for process 1 of the node, the child of unshare(1), and return it. Its namespaces exist once
        it runs Python.
        """
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        found: list[ProcessId] = []

        def started() -> bool:
            if parent.poll() is not None:
                raise ClusterError(f"node {self.name} did not start:\n{tail(self.log('init'))}")
            for pid in children.read_text().split():
                process = identify(int(pid))
                if process and Path(f"/proc/{pid}/cmdline").read_bytes().startswith(sys.executable.encode()):
                    found.append(process)
            return bool(found)

        wait_for(started, deadline=10, what=f"first process of node {self.name}", every=0.01)
        return found[0]

    # ---- faults ---------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Crash the node. Its processes and memory are lost, its disk stays. It is no error if the node is
        down.
        """
        with self.cluster.lock():
            self._kill()

    def _kill(self) -> None:
        if process := self.cluster.state().processes.get(f"node/{self.name}"):
            end([process])
            self.cluster.network.disconnect(self.record.index)

    def reboot(self) -> None:
        """Crash the node if it runs, then start it with the same disk. Returns before the node is Ready."""
        with self.cluster.lock():
            self._kill()
            self.start()

    def cut(self) -> None:
        """Cut the node off the network. The node keeps running."""
        self._set_connected(connected=False)

    def heal(self) -> None:
        """Reconnect the node to the network."""
        self._set_connected(connected=True)

    def _set_connected(self, *, connected: bool) -> None:
        with self.cluster.lock():
            if not self.alive:
                raise ClusterError(
                    f"node {self.name} is down, so its network cannot be changed; reboot it first"
                )
            with self.cluster.changing() as state:
                state.nodes[self.name].cut = not connected
            self.cluster.network.set_link(self.record.index, up=connected)

    def throttle(self, pod_uid: str, fraction: float) -> None:
        """Limit a running pod to `fraction` of a processor (0.1 is a tenth); 0 restores the old limit."""
        if fraction < 0:
            raise ClusterError(f"a pod cannot have {fraction:g} processors")
        cgroups = self.cluster.cgroups
        with self.cluster.lock(), self.cluster.changing() as state:
            cgroups.restore(state.throttled.pop(pod_uid, {}))
            if fraction:
                state.throttled[pod_uid] = cgroups.throttle(cgroups.pod(self.cgroup, pod_uid), fraction)

    # ---- commands --------------------------------------------------------------------------------------

    def run(self, argv: Sequence[str | Path], *, deadline: float = 60, stdin: Input | None = None) -> str:
        """Run a program as root in the node's namespaces. Return its standard output."""
        return run(
            ["nsenter", f"--target={self.pid}", "--mount", "--net", "--uts", "--ipc", "--pid", "--", *argv],
            deadline=deadline,
            stdin=stdin,
        )

    def ctr(self, *arguments: str, deadline: float = 60, stdin: Input | None = None) -> str:
        """Run containerd's client in containerd's namespace `k8s.io`. Return its output."""
        program = str(self.cluster.binaries / "ctr")
        argv = [program, f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", *arguments]
        return self.run(argv, deadline=deadline, stdin=stdin)

    def wait_runtime(self, deadline: float = 60) -> None:
        """Wait until containerd responds."""

        def responds() -> bool:
            try:
                self.ctr("images", "list", "--quiet", deadline=5)
            except ClusterError:
                return False
            return True

        wait_for(
            responds,
            deadline=deadline,
            what=f"container runtime of node {self.name}",
            why=lambda: tail(self.log("containerd")),
        )

    @property
    def store(self) -> Path:
        """Path of the node's container store on the machine."""
        return self.folder / "var" / "lib" / "containerd"
