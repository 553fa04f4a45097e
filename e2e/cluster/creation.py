"""Creates a cluster, or adds a node to it. The caller holds the cluster's lock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.cluster import binaries, loading, pause, space, system, templates, versions
from e2e.cluster.components import SERVING
from e2e.cluster.errors import ClusterError
from e2e.cluster.network import machine_routes
from e2e.cluster.node import Node
from e2e.cluster.node_config import PAUSE_IMAGE
from e2e.cluster.oci import Image
from e2e.cluster.run import run
from e2e.cluster.state import NodeRecord, allocate, templates_in_use

if TYPE_CHECKING:
    from e2e.cluster.cluster import Cluster


def create(cluster: Cluster, nodes: int, references: Sequence[str] | None, *, audit: str) -> None:
    """Create a cluster that does not exist yet. Its nodes get these images (None: all that this checkout
    has built).
    """
    report = cluster.progress.report
    programs = binaries.ensure(cluster.progress)
    pause.ensure(cluster.images)
    images = _images(cluster, references)
    space.ensure(cluster.images, images, lambda: templates.lacking_bytes(cluster.images, images), report)
    options = {
        "kubernetes": versions.release().kubernetes,
        "binaries": str(programs),
        "audit": audit,
        "nodes": nodes,
    }
    state = allocate(cluster.file, cluster.name, machine_routes(), options)
    report(f"cluster {cluster.name}: {nodes} nodes in {state.addresses.network}, folder {cluster.folder}")
    cluster.shared_dir.mkdir(mode=0o777)
    cluster.shared_dir.chmod(0o777)
    with cluster.changing() as state:
        state.firewall = cluster.network.forward_rules()
    cluster.network.create()
    cluster.network.add_rules(cluster.state().firewall)
    cluster.control_plane.prepare()
    cluster.components.launch(*SERVING)
    prepared = _prepare_nodes(cluster, range(1, nodes + 1), images)
    report("nodes prepared")
    cluster.components.wait_serving()
    report("API server is ready")
    cluster.components.launch("kube-controller-manager", "kube-scheduler", "coredns")
    with ThreadPoolExecutor() as pool:
        starting = [pool.submit(node.start) for node in prepared]
        objects = json.dumps(system.objects(cluster.addresses))
        cluster.kubectl("apply", "--server-side", "-f", "-", text=objects)
        for one in starting:
            one.result()
    report("nodes started")
    _finish(cluster, prepared, images)
    with cluster.changing() as state:
        state.phase = "up"
    report(f"cluster {cluster.name} is up; export KUBECONFIG={cluster.kubeconfig}")


def add_node(cluster: Cluster) -> Node:
    """Create one more node with all images that this checkout has built. Return it when it is Ready."""
    index = max((record.index for record in cluster.state().nodes.values()), default=0) + 1
    images = _images(cluster, None)
    (node,) = _prepare_nodes(cluster, [index], images)
    node.start()
    _finish(cluster, [node], images)
    return node


def _images(cluster: Cluster, references: Sequence[str] | None) -> list[Image]:
    """Return the images for the nodes, including the sandbox image."""
    store = cluster.images
    known = store.images()
    names = known if references is None else [store.get(one).name for one in [*references, PAUSE_IMAGE]]
    return [known[name] for name in dict.fromkeys(names)]


def _prepare_nodes(cluster: Cluster, indices: Iterable[int], images: Sequence[Image]) -> list[Node]:
    """Add new nodes to the state and write their disks. The nodes are not started."""
    nodes = []
    for index in indices:
        with cluster.changing() as state:
            state.nodes[f"node-{index}"] = NodeRecord(index)
        nodes.append(Node(cluster, f"node-{index}"))
        nodes[-1].prepare()

    def claim(template: Path) -> None:
        with cluster.changing() as state:
            state.templates = sorted({*state.templates, str(template)})

    try:
        template = templates.ensure(
            templates.TemplateBuilder(cluster.identity, cluster.binaries, cluster.folder / "t"),
            cluster.images,
            images,
            claim=claim,
            in_use=templates_in_use,
            report=cluster.progress.report,
        )
        for node in nodes:
            templates.copy_into(template, node.store, cluster.identity)
    except ClusterError as error:
        # Without a template the nodes still work, but each must import the images after its start, which is
        # slower.
        cluster.progress.report(
            f"no prepared container store ({error}); images are imported into each node instead"
        )
        for node in nodes:
            run(["rm", "-rf", node.store], deadline=120)
        _ensure_room_for_each(cluster, len(nodes), images)
    return nodes


def _ensure_room_for_each(cluster: Cluster, nodes: int, images: Sequence[Image]) -> None:
    """Raise ClusterError if the disk cannot hold the images once for each of `nodes` nodes."""
    store = cluster.images
    total = nodes * store.size(store.lacking(images, ()))
    space.ensure(store, images, lambda: total, cluster.progress.report)


def _finish(cluster: Cluster, nodes: Sequence[Node], images: Sequence[Image]) -> None:
    """Wait until the nodes are Ready and have their images."""
    for node in nodes:
        node.wait_runtime()
    loading.update(nodes, cluster.images, images)
    cluster.wait_ready([node.name for node in nodes])
