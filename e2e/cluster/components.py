"""Starts, inspects and stops the processes of the control plane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from e2e.cluster.control_plane import COMPONENTS
from e2e.cluster.errors import ClusterError
from e2e.cluster.processes import end, release, spawn
from e2e.cluster.run import tail, wait_for

if TYPE_CHECKING:
    from e2e.cluster.cluster import Cluster

SERVING = ("etcd", "kube-apiserver")
"""Components without which the API server cannot respond."""


class Components:
    """The processes of a cluster's control plane. Their names are those in `COMPONENTS`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def log(self, component: str) -> Path:
        """Return the path of a component's log."""
        return self.cluster.folder / "logs" / f"{component}.log"

    def alive(self, component: str) -> bool:
        """Return True if the component's process runs."""
        process = self.cluster.state().processes.get(component)
        return process is not None and process.alive

    def launch(self, *components: str) -> None:
        """Start these components, which must not be running. The caller holds the cluster's lock."""
        cluster = self.cluster
        commands = cluster.control_plane.commands()
        for component in components:
            process = spawn(commands[component], identity=cluster.identity, log=self.log(component))
            with cluster.changing() as state:
                state.processes[component] = release(process)

    def wait_serving(self, deadline: float = 120) -> None:
        """Wait until the API server is ready. Raises ClusterError at once if the API server or etcd has
        ended.
        """
        plane = self.cluster.control_plane

        def ready() -> bool:
            for component in SERVING:
                if not self.alive(component):
                    raise ClusterError(
                        f"{component} ended right after its start:\n{tail(self.log(component))}"
                    )
            return plane.healthy()

        wait_for(ready, deadline=deadline, what="API server", why=lambda: tail(self.log("kube-apiserver")))

    def stop(self, component: str) -> None:
        """Kill the process of a component to cause an outage, for example `kube-apiserver`."""
        _known(component)
        with self.cluster.lock():
            if process := self.cluster.state().processes.get(component):
                end([process])

    def start(self, component: str) -> None:
        """Start a component that has ended, and wait until the API server is ready."""
        _known(component)
        with self.cluster.lock():
            if not self.alive(component):
                self.launch(component)
        if component in SERVING and self.alive("kube-apiserver"):
            self.wait_serving()


def _known(component: str) -> None:
    if component not in COMPONENTS:
        raise ClusterError(f"no component {component}; known: {', '.join(COMPONENTS)}")
