"""A service account that may view everything on the dashboard, and instructions to open the dashboard."""

from __future__ import annotations

import json
from typing import Any

from e2e.cluster.cluster import Cluster
from e2e.install import NAMESPACE

READER = "reader"
"""Name of the service account with which a viewer logs in to the dashboard."""


def dashboard_hints(cluster: Cluster) -> str:
    """Create the viewer's service account. Return the dashboard's address and the command for a token."""
    cluster.kubectl("apply", "-f", "-", text=json.dumps(reader()))
    service = cluster.kubectl("-n", NAMESPACE, "get", "service", "convoy-dashboard", "-o", "json")
    address = json.loads(service)["spec"]["clusterIP"]
    return (
        f"Dashboard, in a browser on this machine: http://{address}\n"
        f"  ssh -L 8090:{address}:80 THIS_MACHINE    # from another machine; then http://localhost:8090\n"
        f"  kubectl -n {NAMESPACE} create token {READER}    # prints a token for the login\n"
    )


def reader() -> dict[str, Any]:
    """Return a service account that has Kubernetes' role `view`, as a List for `kubectl apply`."""
    account = {
        "kind": "ServiceAccount",
        "apiVersion": "v1",
        "metadata": {"name": READER, "namespace": NAMESPACE},
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"convoy-{READER}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [account, binding]}
