"""Finds what an uninstalled Convoy may leave behind: objects, marks on nodes, files and processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from convoy_crds.meta import API_VERSION, GROUP
from e2e.cluster.cluster import Cluster
from e2e.install import CHART, NAMESPACE

_SHORT_LIVED = ("events", "events.events.k8s.io")
"""Resources whose objects the API server deletes after a while."""
_NAMESPACES_OWN = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
"""Kind and name of the objects that Kubernetes creates in every namespace."""
_AGGREGATED = "kube-aggregator.kubernetes.io/automanaged"
"""Label of the APIServices that the API server itself creates and deletes together with the
CustomResourceDefinitions of an API group.
"""
_SCRIPT = """
grep -E ' (/run/convoy|[^ ]*convoy[.]dev)' /proc/mounts | sed 's/^/mount /'
find /run/convoy /var/lib/convoy/models -mindepth 1 2>/dev/null
find /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry -name '*convoy*'
grep -lx 'convoy-.*' /proc/[0-9]*/comm 2>/dev/null
true
"""


def definitions(chart: Path = CHART) -> dict[str, dict[str, Any]]:
    """Return a chart's CustomResourceDefinitions by name."""
    found = (yaml.safe_load(path.read_text()) for path in sorted(chart.glob("files/crds/*.yaml")))
    return {body["metadata"]["name"]: body for body in found}


def objects(cluster: Cluster) -> dict[str, list[str]]:
    """Return the names of Convoy's objects by kind.

    An object is Convoy's if its kind, its label, its name or its namespace is Convoy's.
    """
    listed = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    known = ",".join(sorted(set(listed) - set(_SHORT_LIVED)))
    found: dict[str, list[str]] = {}
    for body in cluster.get(known, "--all-namespaces")["items"]:
        if _is_convoys(body):
            found.setdefault(body["kind"], []).append(body["metadata"]["name"])
    return {kind: sorted(names) for kind, names in sorted(found.items())}


def _is_convoys(body: dict[str, Any]) -> bool:
    metadata: dict[str, Any] = body["metadata"]
    if (body["kind"], metadata["name"]) in _NAMESPACES_OWN or _AGGREGATED in metadata.get("labels", {}):
        return False
    name: str = metadata["name"]
    return (
        name.startswith("convoy")
        or name.endswith(GROUP)
        or body["apiVersion"] == API_VERSION
        or metadata.get("namespace") == NAMESPACE
        or metadata.get("labels", {}).get("app.kubernetes.io/part-of") == "convoy"
    )


def node_marks(cluster: Cluster) -> list[str]:
    """Return Convoy's labels, annotations, taints, conditions and CSI drivers on all nodes."""
    found = []
    for node in cluster.get("nodes")["items"]:
        metadata, status = node["metadata"], node["status"]
        shown = [*metadata["labels"].items(), *metadata.get("annotations", {}).items()]
        shown += [taint["key"] for taint in node["spec"].get("taints", [])]
        shown += [condition["type"] for condition in status["conditions"]]
        found += [f"{metadata['name']}: {one}" for one in shown if GROUP in str(one)]
    for node in cluster.get("csinodes")["items"]:
        drivers = json.dumps(node["spec"].get("drivers") or [])
        found += [f"{node['metadata']['name']}: {drivers}"] if GROUP in drivers else []
    return found


def on_nodes(cluster: Cluster) -> list[str]:
    """Return Convoy's mounts, files and processes on all nodes."""
    return [
        f"{node.name}: {line}"
        for node in cluster.nodes
        for line in node.run(["sh", "-c", _SCRIPT]).splitlines()
    ]
