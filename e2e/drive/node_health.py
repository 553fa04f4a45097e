"""Helpers for GuardPolicies, NodeHealths and HealthSweeps of a cluster."""

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
    """Create an object. After the block, delete it and all objects of kind `made`, which the operator
    creates for it.
    """
    body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    try:
        yield
    finally:
        cluster.kubectl("delete", kind, name)
        cluster.kubectl("delete", made, "--all")


@contextmanager
def policy(cluster: Cluster, name: str, spec: dict[str, Any]) -> Iterator[None]:
    """Create a GuardPolicy for all nodes. After the block, delete it and everything the operator created
    for it.
    """
    try:
        with temporary_object(cluster, "GuardPolicy", name, spec, "nodehealths"):
            yield
    finally:
        cluster.kubectl("delete", "healthsweeps,hardwareclasses", "--all")


def health(cluster: Cluster, node: str) -> dict[str, Any]:
    """Return the status of the NodeHealth of a node; empty if there is none."""
    found = (one.get("status", {}) for one in cluster.get("nodehealths")["items"])
    return next((one for one in found if one.get("nodeRef", {}).get("name") == node), {})


def condemn(cluster: Cluster, node: str) -> None:
    """Take the hardware of a node out of service, as `convoy guard condemn` does."""
    (name,) = (
        one["metadata"]["name"]
        for one in cluster.get("nodehealths")["items"]
        if one.get("status", {}).get("nodeRef", {}).get("name") == node
    )
    spec = {"condemned": {"reason": "a test", "user": "tests"}}
    cluster.kubectl("patch", "nodehealth", name, "--type=merge", "-p", json.dumps({"spec": spec}))


def nodes_ever_acted_on(cluster: Cluster) -> set[str]:
    """Return the nodes that the guard has ever taken out of service."""
    found = set()
    for one in cluster.get("nodehealths")["items"]:
        status = one.get("status", {})
        states = {turn["after"] for turn in status.get("history", [])} | {status.get("state", "Unverified")}
        if states - {"Unverified", "Qualified"}:
            found.add(status["nodeRef"]["name"])
    return found


def last_action(cluster: Cluster, node: str) -> dict[str, Any]:
    """Return the guard's last action against the hardware of a node; empty if there is none."""
    actions: list[dict[str, Any]] = health(cluster, node).get("actions") or [{}]
    return actions[-1]


def taints(cluster: Cluster, node: str) -> dict[str, str]:
    """Return Convoy's taints on a node."""
    found = cluster.get("nodes", node)["spec"].get("taints") or []
    return {one["key"]: one["effect"] for one in found if one["key"].startswith("convoy.dev/")}


@contextmanager
def sweep(cluster: Cluster, name: str, **spec: Any) -> Iterator[None]:
    """Create a HealthSweep. After the block, delete it and the HardwareClasses that the operator created."""
    with temporary_object(cluster, "HealthSweep", name, spec, "hardwareclasses"):
        yield


def finished_sweep(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return the status of a HealthSweep that has ended; empty if it has not ended."""
    status: dict[str, Any] = cluster.get("healthsweeps", name).get("status", {})
    return status if status.get("completionTime") else {}
