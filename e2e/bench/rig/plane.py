"""The rig: etcd, API server, controller manager, scheduler and kwok's fake nodes. No kubelet, no container.

It is a local cluster like any other (see e2e.cluster), without real nodes: `make clean` takes it away too.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from e2e.bench.rig import audit, kwok
from e2e.bench.rig.api import Object
from e2e.bench.rig.programs import Programs
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
"""The parts of the controller manager that work for a JobSet."""
JOBSET_USER = "system:serviceaccount:jobset-system:jobset-controller"
MANAGER = "kube-controller-manager"
UNLIMITED = ("--kube-api-qps=2000", "--kube-api-burst=4000")
"""For every component that is not under test: it shall not be what is measured."""
# The chart's parts that run in a cluster's pods; here they are processes of the machine, or fake.
_NOT_INSTALLED = {"Deployment", "DaemonSet", "Service", "PodDisruptionBudget"}


class Plane:
    """Brought up by `up`, taken away by `down`, also after a crash of whoever brought it up."""

    def __init__(self, nodes: int, progress: Progress) -> None:
        self.cluster = Cluster(NAME, progress=progress)
        self.programs = Programs(self.cluster)
        self.surviving, self.crashing = kwok.names(nodes)
        self._progress = progress
        self._kwok = Path()
        self._manager: tuple[str, ...] = ()

    @property
    def control(self) -> ControlPlane:
        """Files and command lines of the control plane."""
        return self.cluster.control_plane

    @property
    def host(self) -> str:
        """The rig's own address: everything listens there."""
        return self.cluster.addresses.host

    @property
    def nodes(self) -> list[str]:
        """All fake nodes."""
        return sorted([*self.surviving, *self.crashing])

    def up(self) -> None:
        """Makes all of it anew; ClusterError when that fails."""
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
            # The log must stay one file, and a thousand pods go away at once between two measurements.
            "--audit-log-maxsize=100000",
            "--delete-collection-workers=16",
        )
        why = self.programs.log("kube-apiserver")
        wait_for(self.control.healthy, deadline=60, what="API server", why=lambda: tail(why))
        self.start_manager(*UNLIMITED)
        self._start("kube-scheduler", *UNLIMITED)
        self._install()
        for group in (kwok.SURVIVING, kwok.CRASHING):
            self.start_kwok(group)
        with self.cluster.changing() as state:
            state.phase = "up"
        self._progress.report(f"rig is up; export KUBECONFIG={self.cluster.kubeconfig}")

    def down(self) -> None:
        """Takes all of it away."""
        self.cluster.down()

    def start_manager(self, *flags: str) -> None:
        """The controller manager, with these flags; ends one that has others."""
        if self._manager != flags or self.programs.get(MANAGER) is None:
            self.programs.stop(MANAGER)
            self._start(MANAGER, *flags)
            self._manager = flags

    def start_kwok(self, group: str) -> None:
        """The kubelets of one group of nodes."""
        file = self.cluster.folder / "config" / f"kwok-{group}.yaml"
        files.write(file, kwok.config(group))
        self.programs.start(f"kwok-{group}", kwok.command(self._kwok, self.cluster.kubeconfig, file))

    def cut(self, *, cut: bool) -> None:
        """Makes the pods of the nodes that fall unreachable, or reachable again."""
        for name in self.crashing:
            network = self._node(name)["spec"]["podCIDR"]
            change = "replace" if cut else "del"
            run(["ip", "route", change, network, "dev", self.cluster.network.bridge])

    def node_bodies(self) -> list[Object]:
        """All Nodes, to be created."""
        return [self._node(name) for name in self.nodes]

    def manifests(self) -> list[Object]:
        """Return the manifests of this checkout's chart."""
        return rendered(self.cluster.binaries, "--set=images.tag=bench", "--set=dashboard.enabled=true")

    @property
    def engines(self) -> Path:
        """The folder of the catalogue, as the operator's pod has it mounted."""
        return self.cluster.folder / "engines"

    def _claim_pod_addresses(self) -> None:
        """Gives the machine all pods' addresses: a connection to one is refused, as if a pod were there."""
        bridge = self.cluster.network.bridge
        run(["ip", "route", "replace", "local", self.cluster.addresses.pods, "dev", bridge, "table", "main"])

    def _node(self, name: str) -> Object:
        group = kwok.CRASHING if name in self.crashing else kwok.SURVIVING
        return kwok.node(name, self.nodes.index(name), group, self.cluster.addresses)

    def _start(self, component: str, *flags: str) -> None:
        self.programs.start(component, [*self.control.commands()[component], *flags])

    def _install(self) -> None:
        """The chart without its pods: kinds, rights, CSI driver, catalogue."""
        self.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        documents = [one for one in self.manifests() if one["kind"] not in _NOT_INSTALLED]
        self.apply(documents)
        for document in documents:
            if document["kind"] == "ConfigMap":
                for name, text in (document.get("data") or {}).items():
                    files.write(self.engines / name, text)

    def apply(self, documents: list[Object]) -> None:
        """Server-side apply."""
        manifest = yaml.safe_dump_all(documents)
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=manifest)
