"""Fixtures: a client for the test's own namespace, and a function that writes a job's status as the
operator does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from convoy.client import Client

Report = Callable[..., None]

SINCE = "2026-01-01T00:00:00Z"
SPEC = {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 2}]}

SERVING_SPEC = {"roles": [{"name": "server", "engine": {"name": "lm"}}]}


def condition(kind: str, reason: str = "R", message: str = "m", status: str = "True") -> dict[str, str]:
    """Return a condition for a status."""
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE
    }  # fmt: skip


@pytest.fixture
def client(control_plane: Any) -> Client:
    return Client(kubeconfig=control_plane.kubeconfig(), namespace=control_plane.namespace("client"))


@pytest.fixture
def report(control_plane: Any, client: Client) -> Report:
    """Return a function that writes a job's status as the operator does. By default the status belongs to
    the newest spec.
    """

    def write(name: str, plural: str = "trainingjobs", **status: Any) -> None:
        path = f"/apis/convoy.dev/v1alpha1/namespaces/{client.namespace}/{plural}/{name}"
        generation = control_plane.request("GET", path)["metadata"]["generation"]
        body = {"status": {"observedGeneration": generation, **status}}
        control_plane.request("PATCH", f"{path}/status", body, "application/merge-patch+json")

    return write
