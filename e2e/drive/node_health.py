"""GuardPolicies, NodeHealths and HealthSweeps of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from convoy_crds.meta import API_VERSION
from e2e.cluster.cluster import Cluster

POLICY = {
    "mode": "Act",
    "detection": {"leastSlowdownPercent": 30, "lasting": "5s"},
    "drain": {"swapCost": "1s"},
    "budgets": {"poolPercent": 20},
}


@contextmanager
def temporary_object(
    cluster: Cluster, kind: str, name: str, spec: dict[str, Any], made: str
) -> Iterator[None]:
    """An object, which goes in the end, and with it all of the kind that the operator has made for it."""
    body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    try:
        yield
    finally:
        cluster.kubectl("delete", kind, name)
        cluster.kubectl("delete", made, "--all")


@contextmanager
def policy(cluster: Cluster, name: str, spec: dict[str, Any]) -> Iterator[None]:
    """A GuardPolicy for all nodes, which are as they were when it has gone."""
    try:
        with temporary_object(cluster, "GuardPolicy", name, spec, "nodehealths"):
            yield
    finally:
        cluster.kubectl("delete", "healthsweeps,hardwareclasses", "--all")


def health(cluster: Cluster, node: str) -> dict[str, Any]:
    """The status of the NodeHealth of a node."""
    found = (one.get("status", {}) for one in cluster.get("nodehealths")["items"])
    return next((one for one in found if one.get("nodeRef", {}).get("name") == node), {})


def nodes_ever_acted_on(cluster: Cluster) -> set[str]:
    """Nodes that are, or ever were, anything but in service."""
    found = set()
    for one in cluster.get("nodehealths")["items"]:
        status = one.get("status", {})
        states = {turn["after"] for turn in status.get("history", [])} | {status.get("state", "Unverified")}
        if states - {"Unverified", "Qualified"}:
            found.add(status["nodeRef"]["name"])
    return found


def last_action(cluster: Cluster, node: str) -> dict[str, Any]:
    """The last action against the hardware of a node."""
    actions: list[dict[str, Any]] = health(cluster, node).get("actions") or [{}]
    return actions[-1]


def taints(cluster: Cluster, node: str) -> dict[str, str]:
    """Convoy's own taints on a node."""
    found = cluster.get("nodes", node)["spec"].get("taints") or []
    return {one["key"]: one["effect"] for one in found if one["key"].startswith("convoy.dev/")}


@contextmanager
def sweep(cluster: Cluster, name: str, **spec: Any) -> Iterator[None]:
    """A HealthSweep; what it has taught goes with it."""
    with temporary_object(cluster, "HealthSweep", name, spec, "hardwareclasses"):
        yield


def finished_sweep(cluster: Cluster, name: str) -> dict[str, Any]:
    """The status of a HealthSweep that is over; empty before."""
    status: dict[str, Any] = cluster.get("healthsweeps", name).get("status", {})
    return status if status.get("completionTime") else {}
