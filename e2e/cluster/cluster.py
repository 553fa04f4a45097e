"""A cluster that tests can create, inspect, change and delete."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster import creation, files, loading, machine, teardown, versions
from e2e.cluster.addresses import Addresses, cluster_id
from e2e.cluster.cgroups import Cgroups
from e2e.cluster.components import Components
from e2e.cluster.control_plane import COMPONENTS, ControlPlane
from e2e.cluster.errors import ClusterError
from e2e.cluster.network import Network
from e2e.cluster.node import Node
from e2e.cluster.oci import Store
from e2e.cluster.progress import Progress
from e2e.cluster.run import run, tail, wait_for
from e2e.cluster.state import State, StateFile, clusters_root

DEFAULT_NAME = "dev"


class Cluster:
    """The cluster `name` of a checkout. The cluster may be down."""

    def __init__(
        self, name: str = DEFAULT_NAME, *, checkout: Path = files.CHECKOUT, progress: Progress | None = None
    ) -> None:
        if not name.replace("-", "").isalnum() or not name.islower() or len(name) > 20:
            raise ClusterError(f"cluster name {name!r}: use at most 20 of a-z, 0-9 and -, with a letter")
        self.name = name
        self.identity = cluster_id(checkout, name)
        self.file = StateFile(clusters_root() / self.identity)
        self.progress = progress or Progress()
        self.cgroups = Cgroups.detect()
        self.images = Store(checkout=checkout)
        self._writing = threading.RLock()

    # ---- properties ----------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Folder of all files of the cluster."""
        return self.file.folder

    @property
    def exists(self) -> bool:
        """True if the cluster exists, completely or in part."""
        return self.file.path.exists()

    def state(self) -> State:
        """Return the content of the state file. Raises ClusterError if there is no such cluster."""
        state = self.file.load()
        if state is None:
            raise ClusterError(f"there is no cluster {self.name}; `up --name {self.name}` creates it")
        return state

    @contextmanager
    def changing(self) -> Iterator[State]:
        """Yield the state, and save it if the block ends without an error. The caller holds `lock`."""
        with self._writing:
            state = self.state()
            yield state
            self.file.save(state)

    def lock(self) -> Any:
        """Return a context manager that keeps other commands from changing this cluster."""
        return self.file.lock()

    @property
    def addresses(self) -> Addresses:
        """The cluster's addresses."""
        return self.state().addresses

    @property
    def network(self) -> Network:
        """The bridge, links and routes that the cluster has on the machine."""
        return Network(self.identity, self.addresses)

    @property
    def binaries(self) -> Path:
        """The folder of the cluster's programs."""
        return Path(self.state().options["binaries"])

    @property
    def control_plane(self) -> ControlPlane:
        """Files and command lines of the control plane."""
        state = self.state()
        return ControlPlane(
            self.identity, self.folder, self.binaries, state.addresses, audit=state.options["audit"]
        )

    @property
    def components(self) -> Components:
        """The processes of the control plane."""
        return Components(self)

    @property
    def cgroup(self) -> str:
        """Name of the control group that is the parent of the nodes' groups."""
        return f"convoy-{self.identity}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def shared_dir(self) -> Path:
        """A folder that has the same path on the machine and on all nodes, for hostPath PersistentVolumes."""
        return self.folder / "shared"

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in order of their numbers."""
        records = self.state().nodes
        return [Node(self, name) for name in sorted(records, key=lambda name: records[name].index)]

    def node(self, name: str) -> Node:
        """Return the node with this name. Raises ClusterError if there is none."""
        node = Node(self, name)
        _ = node.record
        return node

    # ---- creation ---------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        nodes: int = 3,
        name: str = DEFAULT_NAME,
        *,
        images: Sequence[str] | None = None,
        audit: str = "",
        progress: Progress | None = None,
    ) -> Cluster:
        """Create the cluster, or return it if it is already up and all its nodes run. Return when every
        node is Ready.

        `images` are references of the image store to load into every node (default: all images that this
        checkout has built). `audit` is a namespace; requests of its service accounts are logged. If an
        earlier `up` was interrupted, everything that it left is deleted first.
        """
        machine.require_root_and_tools()
        cluster = cls(name, progress=progress)
        with cluster.lock():
            state = cluster.file.load()
            if state and state.phase == "up" and cluster._complete():
                cluster._require_release(state)
                cluster.progress.report(f"cluster {name} is already up ({len(state.nodes)} nodes)")
                return cluster
            if state:
                cluster.progress.report(
                    f"cluster {name} is incomplete ({state.phase}); deleting what exists of it"
                )
            cluster._destroy(state)
            try:
                creation.create(cluster, nodes, images, audit=audit)
            except ClusterError as error:
                if not cluster.exists:
                    raise
                hint = f"The incomplete cluster is kept in {cluster.folder}; `down --name {name}` deletes it."
                raise ClusterError(f"{error}\n{hint}") from error
        return cluster

    def _require_release(self, state: State) -> None:
        """Raise ClusterError if the cluster runs another release of Kubernetes than the chosen one."""
        running, wanted = state.options["kubernetes"], versions.release().kubernetes
        if running != wanted:
            raise ClusterError(
                f"cluster {self.name} runs Kubernetes {running}, not {wanted}; `down --name {self.name}`"
                f" deletes it, and {versions.CHOICE} chooses the version of a new one"
            )

    def _complete(self) -> bool:
        return all(map(self.components.alive, COMPONENTS)) and all(node.alive for node in self.nodes)

    # ---- use ------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, text: str | None = None, deadline: float = 60) -> str:
        """Run kubectl as the administrator, with `text` as its standard input. Return its standard output."""
        environment = {"KUBECONFIG": str(self.kubeconfig)}
        return run([self.binaries / "kubectl", *arguments], text=text, deadline=deadline, env=environment)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return the parsed output of `kubectl get ... -o json`."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return found

    def node_conditions(self) -> dict[str, str]:
        """Return each node's Ready condition: "True", "False" or "Unknown"."""
        found = {}
        for item in self.get("nodes")["items"]:
            conditions = {one["type"]: one["status"] for one in item["status"].get("conditions", [])}
            found[item["metadata"]["name"]] = conditions.get("Ready", "Unknown")
        return found

    def wait_ready(self, names: Sequence[str] | None = None, *, deadline: float = 120) -> None:
        """Wait until these nodes (default: all) are Ready."""
        wanted = set(names if names is not None else self.state().nodes)

        def ready() -> bool:
            conditions = self.node_conditions()
            return all(conditions.get(name) == "True" for name in wanted)

        def why() -> str:
            late = [name for name in sorted(wanted) if self.node_conditions().get(name) != "True"]
            return "\n".join(f"{name} kubelet: {tail(Node(self, name).log('kubelet'), 800)}" for name in late)

        wait_for(ready, deadline=deadline, what="nodes Ready", every=0.3, why=why)

    def add_node(self) -> Node:
        """Add a node with all images that this checkout has built. Return when the node is Ready."""
        with self.lock():
            return creation.add_node(self)

    def load_image(self, image: str | Path) -> None:
        """Load an image into all running nodes. `image` is the path of an archive or a reference of the
        image store.

        For an image of the store, only the layers that a node lacks are sent.
        """
        nodes = [node for node in self.nodes if node.alive]
        if isinstance(image, Path) or Path(image).is_file():
            loading.load_archive(nodes, Path(image))
        else:
            self.update_images([str(image)])

    def update_images(self, references: Sequence[str]) -> int:
        """Load images of the store into running nodes that lack their present version. Return the number of
        bytes sent.
        """
        images = [self.images.get(one) for one in references if self.images.has(one)]
        nodes = [node for node in self.nodes if node.alive and not node.record.cut]
        sent = loading.update(nodes, self.images, images)
        self.progress.report(f"{sent / 1e6:.1f} MB of images sent to {len(nodes)} nodes")
        return sent

    # ---- deletion --------------------------------------------------------------------------------------

    def down(self) -> None:
        """Delete the cluster, or what an interrupted `up` left of it. It is no error if nothing exists."""
        with self.lock():
            state = self.file.load()
            if state:
                state.phase = "stopping"
                self.file.save(state)
            self._destroy(state)
            (self.folder.parent / f".{self.identity}.lock").unlink(missing_ok=True)
        self.progress.report(f"cluster {self.name} is down")

    def _destroy(self, state: State | None) -> None:
        network = Network(self.identity, state.addresses if state else Addresses(0))
        quiet = (lambda _text: None) if state is None else self.progress.report
        teardown.destroy(self.identity, self.folder, state, self.cgroups, network, quiet)
        if rest := teardown.leftovers(self.identity, self.folder, self.cgroups, network):
            raise ClusterError(
                f"cluster {self.name} could not be deleted completely; still present:\n" + "\n".join(rest)
            )
