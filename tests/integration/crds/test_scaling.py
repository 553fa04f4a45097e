"""Tests of ServingJob's scaling at a real API server: its rules, and the scale subresource."""

from __future__ import annotations

import json
import secrets
import urllib.error
from typing import Any

import pytest
from tests.integration.conftest import ControlPlane

MERGE = "application/merge-patch+json"
WAITING = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "convoy_num_requests_waiting"},
        "target": {"type": "AverageValue", "averageValue": "2500m"},
    },
}
LIMITS = {"minReplicas": 1, "maxReplicas": 4, "metrics": [WAITING]}


def path(namespace: str, name: str = "", subresource: str = "") -> str:
    parts = ["/apis/convoy.dev/v1alpha1/namespaces", namespace, "servingjobs", name, subresource]
    return "/".join(part for part in parts if part)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    return control_plane.namespace("scaling")


def created(control_plane: ControlPlane, namespace: str, scaling: Any, **spec: Any) -> str:
    """Create a ServingJob and return its name."""
    name = f"j-{secrets.token_hex(4)}"
    role = {"name": "server", "engine": {"name": "lm"}, "scaling": scaling}
    body = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "ServingJob",
        "metadata": {"name": name},
        "spec": {"roles": [role], **spec},
    }
    control_plane.request("POST", path(namespace), body)
    return name


def refusal(control_plane: ControlPlane, *request: Any) -> str:
    """Send a request that the API server must refuse. Return its message."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        control_plane.request(*request)
    assert caught.value.code == 422
    return str(json.loads(caught.value.read())["message"])


def test_a_role_that_convoy_scales_refuses_kubectl_scale(control_plane: ControlPlane, namespace: str) -> None:
    name = created(control_plane, namespace, LIMITS)
    spec = control_plane.request("GET", path(namespace, name))["spec"]
    assert "replicas" not in spec
    scale = {"spec": {"replicas": 3}}
    message = refusal(control_plane, "PATCH", path(namespace, name, "scale"), scale, MERGE)
    assert "spec.replicas must be absent, because Convoy itself scales the role" in message
    message = refusal(control_plane, "PATCH", path(namespace, name), scale, MERGE)
    assert "spec.replicas must be absent, because Convoy itself scales the role" in message


def test_a_role_that_nothing_scales_accepts_kubectl_scale(
    control_plane: ControlPlane, namespace: str
) -> None:
    name = created(control_plane, namespace, {**LIMITS, "mode": "None"})
    control_plane.request("PATCH", path(namespace, name, "scale"), {"spec": {"replicas": 3}}, MERGE)
    assert control_plane.request("GET", path(namespace, name))["spec"]["replicas"] == 3


def test_a_horizontal_pod_autoscaler_scales_through_the_subresource(
    control_plane: ControlPlane, namespace: str
) -> None:
    name = created(control_plane, namespace, {**LIMITS, "mode": "HorizontalPodAutoscaler"}, replicas=2)
    assert control_plane.request("GET", path(namespace, name, "scale"))["spec"]["replicas"] == 2
    control_plane.request("PATCH", path(namespace, name, "scale"), {"spec": {"replicas": 4}}, MERGE)
    assert control_plane.request("GET", path(namespace, name))["spec"]["replicas"] == 4


@pytest.mark.parametrize(
    ("scaling", "spec", "words"),
    [
        ({**LIMITS, "minReplicas": 5}, {}, "minReplicas must be at most maxReplicas"),
        (LIMITS, {"replicas": 1}, "spec.replicas must be absent"),
        ({**LIMITS, "minReplicas": 0, "metrics": []}, {}, "minReplicas: 0 needs the Pods metric"),
        ({**LIMITS, "mode": "HorizontalPodAutoscaler"}, {}, "it needs spec.replicas"),
        ({"maxReplicas": 2, "metrics": [{"type": "Pods"}]}, {}, "type Pods needs pods"),
    ],
)
def test_a_mistake_is_refused_at_the_door(
    control_plane: ControlPlane, namespace: str, scaling: Any, spec: Any, words: str
) -> None:
    name = created(control_plane, namespace, {"maxReplicas": 2})
    role = {"name": "server", "engine": {"name": "lm"}, "scaling": scaling}
    patch = {"spec": {"roles": [role], **spec}}
    assert words in refusal(control_plane, "PATCH", path(namespace, name), patch, MERGE)


@pytest.mark.parametrize("value", ["0", 0, "0.0", "0k"])
def test_a_target_of_0_is_refused(control_plane: ControlPlane, namespace: str, value: Any) -> None:
    name = created(control_plane, namespace, LIMITS)
    target = {"type": "AverageValue", "averageValue": value}
    metric = {"type": "Pods", "pods": {**WAITING["pods"], "target": target}}
    role = {"name": "server", "engine": {"name": "lm"}, "scaling": {**LIMITS, "metrics": [metric]}}
    message = refusal(control_plane, "PATCH", path(namespace, name), {"spec": {"roles": [role]}}, MERGE)
    assert "averageValue must be greater than 0" in message
