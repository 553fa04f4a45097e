"""Fake nodes, and the configuration of kwok, which simulates the nodes' kubelets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.addresses import Addresses

GROUP_LABEL = "bench.convoy.dev/group"
SURVIVING, CRASHING = "surviving", "crashing"
"""Groups of nodes. Each group has its own kwok, so that one group can lose all its kubelets at once."""
_LEASE_SECONDS = 40
_AT_ONCE = 128
"""Number of objects that kwok handles at the same time. Real kubelets do not wait for each other."""

_NODE_READY = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
phase: Running
"""
_POD_RUNS = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
"""


def _where(key: str, operator: str, *values: str) -> dict[str, Any]:
    found: dict[str, Any] = {"key": key, "operator": operator}
    return {**found, "values": list(values)} if values else found


def _stage(name: str, kind: str, where: list[dict[str, Any]], then: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": where},
            "next": then,
        },
    }


def config(group: str) -> str:
    """Return kwok's configuration for a group of nodes.

    Nodes become Ready and renew their Leases; pods run at once, and disappear at once when they are
    deleted.
    """
    ready = '.status.conditions.[] | select( .type == "Ready" ) | .status'
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "manageAllNodes": False,
            "manageNodesWithLabelSelector": f"{GROUP_LABEL}={group}",
            "nodeLeaseDurationSeconds": _LEASE_SECONDS,
            "podPlayStageParallelism": _AT_ONCE,
            "nodePlayStageParallelism": _AT_ONCE,
            "nodeLeaseParallelism": _AT_ONCE,
            "podsOnNodeSyncParallelism": _AT_ONCE,
        },
    }
    stages = [
        _stage("node-ready", "Node", [_where(ready, "NotIn", "True")], {"statusTemplate": _NODE_READY}),
        _stage(
            "pod-runs",
            "Pod",
            [_where(".metadata.deletionTimestamp", "DoesNotExist"), _where(".status.podIP", "DoesNotExist")],
            {"statusTemplate": _POD_RUNS},
        ),
        _stage(
            "pod-goes",
            "Pod",
            [_where(".metadata.deletionTimestamp", "Exists")],
            {"finalizers": {"empty": True}, "delete": True},
        ),
    ]
    return yaml.safe_dump_all([options, *stages], sort_keys=False)


def command(program: Path, kubeconfig: Path, configuration: Path) -> list[str]:
    """Return the command line of kwok for one group of nodes."""
    return [str(program), f"--kubeconfig={kubeconfig}", f"--config={configuration}", "--v=WARN"]


def names(count: int) -> tuple[list[str], list[str]]:
    """Return the names of the surviving nodes and of the crashing nodes. Every tenth node is a crashing
    node.
    """
    every = [f"fake-{index:03}" for index in range(count)]
    crashing = every[9::10]
    return [name for name in every if name not in set(crashing)], crashing


def node(name: str, index: int, group: str, addresses: Addresses, cpus: int = 64) -> dict[str, Any]:
    """Return a Node with a pod range inside the cluster's own addresses."""
    resources = {"cpu": str(cpus), "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"}
    first, second = addresses.pods.split(".")[:2]
    pods = f"{first}.{second}.{128 + index // 2}.{128 * (index % 2)}/25"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                GROUP_LABEL: group,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"podCIDR": pods, "podCIDRs": [pods]},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "nodeInfo": {"machineID": f"machine-{name}"},
        },
    }
