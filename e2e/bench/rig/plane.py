"""The rig's control plane: etcd, API server, controller manager, scheduler, and fake nodes of kwok.

No kubelet and no container runs. The rig is a local cluster (see e2e.cluster) without real nodes, so `make
clean` also removes it.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from e2e.bench.rig import audit, kwok
from e2e.bench.rig.api import Object
from e2e.bench.rig.programs import Programs
from e2e.bench.rig.setup import Setup
from e2e.cluster import binaries, files, machine
from e2e.cluster.cluster import Cluster
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.network import machine_routes
from e2e.cluster.progress import Progress
from e2e.cluster.run import run, tail, wait_for
from e2e.cluster.state import allocate
from e2e.install import NAMESPACE, rendered

NAME = "scale"
DASHBOARD_USER = f"system:serviceaccount:{NAMESPACE}:convoy-dashboard"
OPERATOR_USER = f"system:serviceaccount:{NAMESPACE}:convoy-operator"
MANAGER_USERS = tuple(
    f"system:serviceaccount:kube-system:{controller}"
    for controller in ("job-controller", "endpointslice-controller", "endpoint-controller")
)
"""User names of the controllers in the controller manager that do part of a JobSet's work."""
JOBSET_USER = "system:serviceaccount:jobset-system:jobset-controller"
MANAGER = "kube-controller-manager"
UNLIMITED = ("--kube-api-qps=2000", "--kube-api-burst=4000")
"""Flags with rate limits so high that they do not limit the measurement. For components that are not under
test.
"""
_APPLY_SECONDS = 300.0
# Kinds of the chart's objects that are not installed, because their programs run outside pods or are
# simulated.
_NOT_INSTALLED = {"Deployment", "DaemonSet", "Job", "Service", "PodDisruptionBudget"}


class Plane:
    """The control plane of a rig. `down` removes it even if the process that created it has crashed."""

    def __init__(self, nodes: int, progress: Progress, setup: Setup | None = None) -> None:
        self.cluster = Cluster(NAME, progress=progress)
        self.programs = Programs(self.cluster)
        self.surviving, self.crashing = kwok.names(nodes)
        self._progress = progress
        self._setup = setup or Setup()
        self._kwok = Path()
        self._manager: tuple[str, ...] = ()

    @property
    def control(self) -> ControlPlane:
        """Files and command lines of the control plane."""
        return self.cluster.control_plane

    @property
    def host(self) -> str:
        """IP address of the rig, on which all its programs listen."""
        return self.cluster.addresses.host

    @property
    def nodes(self) -> list[str]:
        """Names of all fake nodes."""
        return sorted([*self.surviving, *self.crashing])

    def up(self) -> None:
        """Create a rig. Remove the remains of an earlier rig first. Raise ClusterError if that fails."""
        machine.require_root_and_tools()
        self.cluster.down()
        programs, self._kwok = binaries.ensure(self._progress), binaries.tool("kwok", self._progress)
        with self.cluster.lock():
            options = {"binaries": str(programs), "audit": NAMESPACE, "nodes": 0}
            allocate(self.cluster.file, NAME, machine_routes(), options)
            self.cluster.network.create()
            self._claim_pod_addresses()
            self.control.prepare()
            controllers = (JOBSET_USER, *MANAGER_USERS)
            policy = audit.policy(OPERATOR_USER, controllers)
            files.write(self.cluster.folder / "config" / "audit.json", json.dumps(policy))
        self._start("etcd")
        self._start(
            "kube-apiserver",
            # The bench reads a single audit log file, so never rotate it. Between two measurements a thousand
            # pods are deleted, so allow more parallel deletions.
            "--audit-log-maxsize=100000",
            "--delete-collection-workers=16",
        )
        why = self.programs.log("kube-apiserver")
        wait_for(self.control.healthy, deadline=180, what="API server", why=lambda: tail(why))
        self.start_manager(*UNLIMITED)
        self._start("kube-scheduler", *UNLIMITED)
        self._install()
        for group in (kwok.SURVIVING, kwok.CRASHING):
            self.start_kwok(group)
        with self.cluster.changing() as state:
            state.phase = "up"
        self._progress.report(f"rig is up; export KUBECONFIG={self.cluster.kubeconfig}")

    def down(self) -> None:
        """Remove the rig."""
        self.cluster.down()

    def start_manager(self, *flags: str) -> None:
        """Ensure that the controller manager runs with exactly these flags. Restart it if it has other
        flags.
        """
        if self._manager != flags or self.programs.get(MANAGER) is None:
            self.programs.stop(MANAGER)
            self._start(MANAGER, *flags)
            self._manager = flags

    def start_kwok(self, group: str) -> None:
        """Start the kwok of one group of nodes."""
        file = self.cluster.folder / "config" / f"kwok-{group}.yaml"
        files.write(file, kwok.config(group))
        self.programs.start(f"kwok-{group}", kwok.command(self._kwok, self.cluster.kubeconfig, file))

    def cut(self, *, cut: bool) -> None:
        """Make the pods of the crashing nodes unreachable if `cut` is True, otherwise reachable again."""
        for name in self.crashing:
            network = self._node(name)["spec"]["podCIDR"]
            change = "replace" if cut else "del"
            run(["ip", "route", change, network, "dev", self.cluster.network.bridge])

    def node_bodies(self) -> list[Object]:
        """Return the Node objects to create."""
        return [self._node(name) for name in self.nodes]

    def manifests(self) -> list[Object]:
        """Return the objects that this checkout's chart renders."""
        return rendered(self.cluster.binaries, "--set=images.tag=bench", "--set=dashboard.enabled=true")

    @property
    def engines(self) -> Path:
        """Folder with the engine catalogue, which the chart mounts into the operator's pod."""
        return self.cluster.folder / "engines"

    def _claim_pod_addresses(self) -> None:
        """Route all pod addresses to this machine. It refuses connections, as a pod does on which no
        program listens.
        """
        bridge = self.cluster.network.bridge
        run(["ip", "route", "replace", "local", self.cluster.addresses.pods, "dev", bridge, "table", "main"])

    def _node(self, name: str) -> Object:
        group = kwok.CRASHING if name in self.crashing else kwok.SURVIVING
        index = self.nodes.index(name)
        body = kwok.node(name, index, group, self.cluster.addresses, self._setup.cpus)
        body["metadata"]["labels"].update(self._setup.labels(index))
        return body

    def _start(self, component: str, *flags: str) -> None:
        more = self._setup.flags.get(component, ())
        self.programs.start(component, [*self.control.commands()[component], *more, *flags])

    def _install(self) -> None:
        """Install the chart without its pods: CRDs, rights, CSI driver and engine catalogue."""
        self.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        documents = [one for one in self.manifests() if one["kind"] not in _NOT_INSTALLED]
        self.apply(documents)
        for document in documents:
            if document["kind"] == "ConfigMap":
                for name, text in (document.get("data") or {}).items():
                    files.write(self.engines / name, text)

    def apply(self, documents: list[Object]) -> None:
        """Apply objects with server-side apply."""
        manifest = yaml.safe_dump_all(documents)
        flags = ("--server-side", "--force-conflicts", "-f", "-")
        self.cluster.kubectl("apply", *flags, text=manifest, deadline=_APPLY_SECONDS)
