"""The NetworkPolicies of jobs. They limit who may connect to a job's pods.

- The pods of a job may connect to each other, on any port.
- Clients may connect to the port that a job serves on, in the pods that receive requests.
- The operator may connect to `PROBE_PORT`, where a living pod refuses the connection at once. Without this
  rule it could not tell a lost node from a silent agent.
- The agents may connect to the ports whose metrics they read.

The kubelet's probes come from the pod's own node, which no policy can block. Connections that the pods open
themselves are not limited, so names resolve and data can be read.

A policy selects pods by their labels, and the labels do not change with the incarnation. The ranks of an
incarnation therefore authenticate each other by its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_controllers.children import Apply, owner_reference
from convoy_controllers.resources import NETWORK_POLICIES
from convoy_crds.kind import Kind
from convoy_crds.meta import ObjectMeta
from convoy_crds.terms import LABEL_JOB, LABEL_KIND

PROBE_PORT = 9
"""Port to which the operator connects to learn whether a node is alive. Nothing listens there."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The chart's settings for the NetworkPolicies of jobs."""

    enabled: bool = False
    namespace: str = "convoy-system"
    """Namespace of the operator and the agents."""


@dataclass(frozen=True, slots=True)
class ServedPorts:
    """The ports on which a job receives requests. During a rollout there may be two."""

    ports: Sequence[int]
    selector: Mapping[str, Any]
    """Label selector of the pods that receive the requests."""
    outside: bool
    """True if clients outside the cluster may connect too."""


def names(kind: str, job: str) -> tuple[str, str]:
    """Return the names of a job's policies: for its pods, and for its clients. The name of a job may be used
    by a job of another kind too.
    """
    first = f"{kind.lower()}-{job}"
    return first, f"{first}.clients"


def policies(
    settings: NetworkSettings,
    kind: Kind[Any],
    metadata: ObjectMeta,
    *,
    served: ServedPorts | None = None,
    metrics_ports: Iterable[int] = (),
) -> Iterator[Apply]:
    """Yield the policies of a job; nothing if the chart does not enable them."""
    if not settings.enabled:
        return
    own = {LABEL_JOB: metadata.name, LABEL_KIND: kind.name}
    first, second = names(kind.name, metadata.name)
    ingress: list[Mapping[str, Any]] = [
        {"from": [{"podSelector": {"matchLabels": own}}]},
        {"from": [_convoy(settings, "operator")], "ports": [_tcp(PROBE_PORT)]},
    ]
    if ports := [_tcp(port) for port in sorted(set(metrics_ports))]:
        ingress.append({"from": [_convoy(settings, "agent")], "ports": ports})
    yield _apply(kind, metadata, first, {"matchLabels": own}, ingress)
    if served is not None:
        allowed: dict[str, Any] = {"ports": [_tcp(port) for port in served.ports]}
        if not served.outside:
            allowed["from"] = [{"namespaceSelector": {}}]
        yield _apply(kind, metadata, second, served.selector, [allowed])


def _convoy(settings: NetworkSettings, component: str) -> Mapping[str, Any]:
    """Return the peer for the pods of one of Convoy's own components."""
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.namespace}},
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "convoy", "app.kubernetes.io/component": component}
        },
    }


def _tcp(port: int) -> Mapping[str, Any]:
    return {"protocol": "TCP", "port": port}


def _apply(
    kind: Kind[Any],
    metadata: ObjectMeta,
    name: str,
    selector: Mapping[str, Any],
    ingress: list[Mapping[str, Any]],
) -> Apply:
    labels = {LABEL_JOB: metadata.name, LABEL_KIND: kind.name}
    owner = owner_reference(kind.api_version, kind.name, metadata.name, metadata.uid or "")
    body = {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.kind,
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "podSelector": dict(selector),
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }
    return Apply(NETWORK_POLICIES, body)
