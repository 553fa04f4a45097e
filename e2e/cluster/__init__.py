"""A real multi-node Kubernetes on one Linux machine, without Docker.

Every node is a process tree in namespaces of its own with its own containerd, kubelet and kube-proxy; the
control plane runs as plain processes of the machine. Use it from a shell by ``python -m e2e.cluster`` or from
Python:

    cluster = Cluster.up(nodes=3, name="ci")
    cluster.kubectl("get", "nodes")
    cluster.node("node-2").kill()
    cluster.down()
"""

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node

__all__ = ["Cluster", "Node"]
