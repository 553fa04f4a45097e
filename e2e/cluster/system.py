"""Objects that every cluster starts with: the DNS Service, and the rights of the DNS server."""

from __future__ import annotations

from typing import Any

from e2e.cluster.addresses import Addresses
from e2e.cluster.control_plane import DNS_PORT


def objects(addresses: Addresses) -> dict[str, Any]:
    """Return the objects as a Kubernetes List for `kubectl apply`."""
    dns_ports = [("dns", "UDP"), ("dns-tcp", "TCP")]
    role: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}],
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {
            "clusterIP": addresses.dns,
            "ports": [
                {"name": name, "protocol": protocol, "port": 53, "targetPort": DNS_PORT}
                for name, protocol in dns_ports
            ],
        },
    }
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-machine",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [addresses.host], "conditions": {"ready": True}}],
        "ports": [{"name": name, "protocol": protocol, "port": DNS_PORT} for name, protocol in dns_ports],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [role, binding, service, slice_]}
