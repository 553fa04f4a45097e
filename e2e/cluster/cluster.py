"""A cluster: bring it up, look at it, change it, take it down."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster import binaries, files, loading, machine, pause, system, teardown, templates
from e2e.cluster.addresses import Addresses, cluster_id
from e2e.cluster.cgroups import Cgroups
from e2e.cluster.control_plane import COMPONENTS, ControlPlane
from e2e.cluster.errors import ClusterError
from e2e.cluster.network import Network, machine_routes
from e2e.cluster.node import Node
from e2e.cluster.node_config import PAUSE_IMAGE
from e2e.cluster.oci import Image, Store
from e2e.cluster.processes import end, let_go, spawn
from e2e.cluster.progress import Progress
from e2e.cluster.run import run, tail, wait_for
from e2e.cluster.state import NodeRecord, State, StateFile, all_states, allocate, clusters_root

DEFAULT_NAME = "dev"


class Cluster:
    """The cluster `name` of a checkout, whether it is up or not."""

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

    # ---- what it is -----------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Everything the cluster has on disk."""
        return self.file.folder

    @property
    def exists(self) -> bool:
        """Whether there is such a cluster, up or half-way."""
        return self.file.path.exists()

    def state(self) -> State:
        """The state file's content; raises ClusterError when there is no such cluster."""
        state = self.file.load()
        if state is None:
            raise ClusterError(f"there is no cluster {self.name}; `up --name {self.name}` makes it")
        return state

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state, saved when the block ends without an error. Hold `lock` around it."""
        with self._writing:
            state = self.state()
            yield state
            self.file.save(state)

    def lock(self) -> Any:
        """Keep other commands off this cluster for the time of a change."""
        return self.file.lock()

    @property
    def addresses(self) -> Addresses:
        """The cluster's addresses."""
        return self.state().addresses

    @property
    def network(self) -> Network:
        """The machine's side of the cluster's network."""
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
            self.identity, self.folder, self.binaries, state.addresses, audit=bool(state.options.get("audit"))
        )

    @property
    def cgroup(self) -> str:
        """The parent of the nodes' control groups."""
        return f"convoy-{self.identity}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def shared_dir(self) -> Path:
        """A folder that the machine and all nodes see under this path, for hostPath PersistentVolumes."""
        return self.folder / "shared"

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in order of their numbers."""
        records = self.state().nodes
        return [Node(self, name) for name in sorted(records, key=lambda name: records[name].index)]

    def node(self, name: str) -> Node:
        """One node by name; raises ClusterError when there is none."""
        node = Node(self, name)
        _ = node.record
        return node

    def component_alive(self, component: str) -> bool:
        """Whether a process of the control plane runs."""
        process = self.state().processes.get(component)
        return process is not None and process.alive

    # ---- up -------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        nodes: int = 3,
        name: str = DEFAULT_NAME,
        *,
        images: Sequence[str] | None = None,
        audit: bool = False,
        progress: Progress | None = None,
    ) -> Cluster:
        """Make the cluster, or return it when it is up already with all its nodes running.

        `images` are references of the image store to have on every node (default: all that this checkout has
        built). What an interrupted `up` left is taken away first. Returns when every node is Ready.
        """
        machine.need_root_and_tools()
        cluster = cls(name, progress=progress)
        with cluster.lock():
            state = cluster.file.load()
            if state and state.phase == "up" and cluster._whole():
                cluster.progress.say(f"cluster {name} is up already ({len(state.nodes)} nodes)")
                return cluster
            if state:
                cluster.progress.say(f"cluster {name} is not whole ({state.phase}); taking its rest away")
            cluster._destroy(state)
            try:
                cluster._create(nodes, images, audit=audit)
            except ClusterError as error:
                hint = (
                    f"What was made is left in {cluster.folder} for a look; `down --name {name}` removes it."
                )
                raise ClusterError(f"{error}\n{hint}") from error
        return cluster

    def _whole(self) -> bool:
        return all(map(self.component_alive, COMPONENTS)) and all(node.alive for node in self.nodes)

    def _create(self, nodes: int, references: Sequence[str] | None, *, audit: bool) -> None:
        say = self.progress.say
        programs = binaries.ensure(self.progress)
        pause.ensure(self.images)
        wanted = self._wanted(references)
        options = {"binaries": str(programs), "audit": audit, "nodes": nodes}
        state = allocate(self.file, self.name, machine_routes(), options)
        say(f"cluster {self.name}: {nodes} nodes in {state.addresses.whole}, folder {self.folder}")
        self.shared_dir.mkdir(mode=0o777)
        self.shared_dir.chmod(0o777)
        with self.changing() as state:
            state.firewall = self.network.forward_rules()
        self.network.create()
        self.network.add_rules(self.state().firewall)
        self.control_plane.prepare()
        self._start("etcd", "kube-apiserver")
        prepared = self._prepare_nodes(range(1, nodes + 1), wanted)
        say("nodes prepared")
        self._wait_control_plane()
        say("API server is ready")
        self._start("kube-controller-manager", "kube-scheduler", "coredns")
        with ThreadPoolExecutor() as pool:
            starting = [pool.submit(node.start) for node in prepared]
            self.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(system.objects(self.addresses)))
            for one in starting:
                one.result()
        say("nodes started")
        self._finish(prepared, wanted)
        with self.changing() as state:
            state.phase = "up"
        say(f"cluster {self.name} is up; export KUBECONFIG={self.kubeconfig}")

    def _wanted(self, references: Sequence[str] | None) -> list[Image]:
        """The images that nodes get; the sandbox image is always one of them."""
        known = self.images.images()
        names = (
            known if references is None else [self.images.get(one).name for one in [*references, PAUSE_IMAGE]]
        )
        return [known[name] for name in dict.fromkeys(names)]

    def _prepare_nodes(self, indices: Iterable[int], wanted: Sequence[Image]) -> list[Node]:
        """Enter new nodes in the state and write their disks; they do not run yet."""
        nodes = []
        for index in indices:
            with self.changing() as state:
                state.nodes[f"node-{index}"] = NodeRecord(index)
            nodes.append(Node(self, f"node-{index}"))
            nodes[-1].prepare()
        try:
            template = templates.ensure(
                templates.Maker(self.identity, self.binaries, self.folder / "t"),
                self.images,
                wanted,
                claim=self._claim,
                in_use=lambda: {path for state in all_states() for path in state.templates},
                say=self.progress.say,
            )
            for node in nodes:
                templates.give(template, node.store, self.identity)
        except ClusterError as error:
            # Slower, but the same in the end: the images are imported once the nodes run.
            self.progress.say(f"no ready-made image store ({error}); images will be imported")
            for node in nodes:
                run(["rm", "-rf", node.store], deadline=120)
        return nodes

    def _claim(self, template: Path) -> None:
        with self.changing() as state:
            state.templates = sorted({*state.templates, str(template)})

    def _finish(self, nodes: Sequence[Node], wanted: Sequence[Image]) -> None:
        """Wait for nodes to be Ready and to have their images."""
        for node in nodes:
            node.wait_runtime()
        loading.update(nodes, self.images, wanted)
        self.wait_ready([node.name for node in nodes])

    def _start(self, *components: str) -> None:
        commands = self.control_plane.commands()
        for component in components:
            process = spawn(commands[component], identity=self.identity, log=self.log(component))
            with self.changing() as state:
                state.processes[component] = let_go(process)

    def _wait_control_plane(self, deadline: float = 120) -> None:
        def ready() -> bool:
            for component in ("etcd", "kube-apiserver"):
                if not self.component_alive(component):
                    raise ClusterError(f"{component} ended at once:\n{tail(self.log(component))}")
            return self.control_plane.healthy()

        wait_for(ready, deadline=deadline, what="API server", why=lambda: tail(self.log("kube-apiserver")))

    # ---- while it is up -------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, text: str | None = None, deadline: float = 60) -> str:
        """Run kubectl as the administrator, with `text` as its input; returns its output."""
        environment = {"KUBECONFIG": str(self.kubeconfig)}
        return run([self.binaries / "kubectl", *arguments], text=text, deadline=deadline, env=environment)

    def get(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get ... -o json`, parsed."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return found

    def node_conditions(self) -> dict[str, str]:
        """Each node's Ready condition as Kubernetes sees it: "True", "False" or "Unknown"."""
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

    def log(self, component: str) -> Path:
        """The log of a component of the control plane."""
        return self.folder / "logs" / f"{component}.log"

    def stop_component(self, component: str) -> None:
        """Kill one process of the control plane, for example `kube-apiserver`: an outage."""
        self._known(component)
        with self.lock():
            if process := self.state().processes.get(component):
                end([process])

    def start_component(self, component: str) -> None:
        """Start what `stop_component` ended; waits for the API server to be ready."""
        self._known(component)
        with self.lock():
            if not self.component_alive(component):
                self._start(component)
        if component in ("etcd", "kube-apiserver") and self.component_alive("kube-apiserver"):
            self._wait_control_plane()

    @staticmethod
    def _known(component: str) -> None:
        if component not in COMPONENTS:
            raise ClusterError(f"no component {component}; known: {', '.join(COMPONENTS)}")

    def add_node(self) -> Node:
        """Add one more node, with the images that this checkout has built; returns when it is Ready."""
        with self.lock():
            index = max((record.index for record in self.state().nodes.values()), default=0) + 1
            wanted = self._wanted(None)
            (node,) = self._prepare_nodes([index], wanted)
            node.start()
            self._finish([node], wanted)
        return node

    def load_image(self, image: str | Path) -> None:
        """Bring an image to all running nodes: an archive's path, or a reference of the image store.

        Of the store's images only the layers that a node lacks are sent.
        """
        nodes = [node for node in self.nodes if node.alive]
        if isinstance(image, Path) or Path(image).is_file():
            loading.load_archive(nodes, Path(image))
        else:
            self.update_images([str(image)])

    def update_images(self, references: Sequence[str]) -> int:
        """Bring images of the store to the running nodes that lack this version; returns the bytes sent."""
        images = [self.images.get(one) for one in references if self.images.has(one)]
        nodes = [node for node in self.nodes if node.alive and not node.record.cut]
        sent = loading.update(nodes, self.images, images)
        self.progress.say(f"{sent / 1e6:.1f} MB of images brought to {len(nodes)} nodes")
        return sent

    # ---- down -----------------------------------------------------------------------------------------

    def down(self) -> None:
        """Take everything away, also what an interrupted `up` left; no error when there is nothing."""
        with self.lock():
            state = self.file.load()
            if state:
                state.phase = "stopping"
                self.file.save(state)
            self._destroy(state)
            (self.folder.parent / f".{self.identity}.lock").unlink(missing_ok=True)
        self.progress.say(f"cluster {self.name} is down")

    def _destroy(self, state: State | None) -> None:
        network = Network(self.identity, state.addresses if state else Addresses(0))
        quiet = (lambda _text: None) if state is None else self.progress.say
        teardown.destroy(self.identity, self.folder, state, self.cgroups, network, quiet)
        if rest := teardown.leftovers(self.identity, self.folder, self.cgroups, network):
            raise ClusterError(f"cluster {self.name} could not be removed completely:\n" + "\n".join(rest))
