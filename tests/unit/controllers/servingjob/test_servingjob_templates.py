"""Tests of the errors in a ServingJob's templates that the operator and `convoy validate` find."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.servingjob.templates import findings

from .servers import make_server

PORTS = "spec.roles[0].template.spec.containers[0].ports"


def found(container: dict[str, Any], **spec: Any) -> list[str]:
    """Return the errors of a job whose program has this container."""
    body = {"image": "own:1", "command": ["serve"], **container}
    role = {"name": "worker", "template": {"spec": {"containers": [body]}}}
    return [str(one) for one in findings(make_server(roles=[role], **spec))]


def probe(port: int | str, kind: str = "httpGet") -> dict[str, Any]:
    return {"readinessProbe": {kind: {"port": port}}}


VLLM = [{"containerPort": 8000, "name": "http"}]


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket", "grpc"])
@pytest.mark.parametrize("port", [8000, "http"])
def test_a_program_on_another_port_than_the_services_is_named(port: int | str, kind: str) -> None:
    (only,) = found({"ports": VLLM, **probe(port, kind)})
    assert only.startswith(f"{PORTS}: requests would go to port 8080, but the container declares and probes")
    assert "set spec.service.port: 8000, or list containerPort 8080" in only


@pytest.mark.parametrize(
    ("container", "spec"),
    [
        ({"ports": VLLM, **probe(8000)}, {"service": {"port": 8000}}),
        ({"ports": [*VLLM, {"containerPort": 8080}], **probe(8000)}, {}),
        ({"ports": VLLM, **probe(8080)}, {}),
        ({"ports": VLLM, **probe("convoy-http")}, {}),
        ({"ports": VLLM, "readinessProbe": {"exec": {"command": ["true"]}}}, {}),
        (probe(8000), {}),
        ({"ports": "8000", **probe(8000)}, {}),
        ({"ports": [None, {"containerPort": "x"}], **probe(8000)}, {}),
    ],
    ids=["service", "both", "probe", "named", "exec", "undeclared", "no list", "no ports"],
)
def test_programs_that_may_be_reached_are_valid(container: dict[str, Any], spec: dict[str, Any]) -> None:
    assert found(container, **spec) == []


def test_only_the_role_that_receives_requests_needs_the_port() -> None:
    body = {"image": "own:1", "command": ["serve"], "ports": VLLM, **probe(8000)}
    other = {"name": "prefill", "replicas": 1, "template": {"spec": {"containers": [body]}}}
    roles = [{"name": "worker", "engine": {"name": "lm"}}, other]
    assert not list(findings(make_server(roles=roles, scaledRole="worker")))
