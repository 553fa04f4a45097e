"""A real multi-node Kubernetes cluster on one Linux machine, without Docker.

Each node is a process tree in its own namespaces, with its own containerd, kubelet and kube-proxy. The
control plane runs as plain processes of the machine. Use it from a shell with ``python -m e2e.cluster``, or
from Python:

    cluster = Cluster.up(nodes=3, name="ci")
    cluster.kubectl("get", "nodes")
    cluster.node("node-2").kill()
    cluster.down()
"""

from e2e.cluster.cluster import Cluster
from e2e.cluster.node import Node

__all__ = ["Cluster", "Node"]
