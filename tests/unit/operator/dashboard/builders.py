"""Builders of objects for tests of the dashboard's tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from convoy_controllers.cached import Node, Pod
from convoy_controllers.views import PodView
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core.objects import ParsedObject, parser_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def ago(**length: float) -> str:
    return (NOW - timedelta(**length)).isoformat()


def raw(name: str = "gpt", made: str | None = None, **status: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"image": "i", "command": ["true"]}]}}
    meta = {
        "name": name,
        "namespace": "team",
        "uid": f"u-{name}",
        "resourceVersion": "7",
        "creationTimestamp": made or ago(hours=1),
        "managedFields": [{"manager": "x"}],
    }
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": meta,
        "spec": {"roles": [{"name": "w", "replicas": 2, "template": template}]},
        "status": status,
    }


def parsed(name: str = "gpt", made: str | None = None, **status: Any) -> ParsedObject[TrainingJob]:
    return parser_of(TrainingJob)(raw(name, made, **status))


def training(
    replicas: int = 3, processes: int = 2, spec: dict[str, Any] | None = None, **status: Any
) -> TrainingJob:
    template = {"spec": {"containers": [{"image": "i", "command": ["true"]}]}}
    role = {"name": "w", "replicas": replicas, "processesPerReplica": processes, "template": template}
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "gpt", "namespace": "team", "uid": "u"},
            "spec": {"roles": [role], **(spec or {})},
            "status": status,
        }
    )


def texts(rows: list[Any]) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in rows]


def pod(name: str, **view: Any) -> Pod:
    given = {"phase": "Running", "node": "node-1", "owner_uid": "u", **view}
    return Pod("team", 1, "gpt", PodView(name=name, uid=f"uid-{name}", **given))


def condition(kind: str, status: str, reason: str, **length: float) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "m",
        "lastTransitionTime": ago(**(length or {"minutes": 1})),
    }


def health(state: str, name: str = "hw", node: str = "node-1", **status: Any) -> NodeHealth:
    return NodeHealth.model_validate(
        {
            "metadata": {"name": name},
            "status": {
                "state": state,
                "since": ago(hours=2),
                "nodeRef": {"name": node, "rack": "r1"},
                **status,
            },
        }
    )


def node(name: str = "node-1", **more: Any) -> Node:
    return Node(name=name, uid=name, version=1, **{"agent_ready": True, "ready": True, **more})
