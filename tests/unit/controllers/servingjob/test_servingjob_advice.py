"""Tests of `spec.lint` of a ServingJob."""

from __future__ import annotations

from typing import Any

from tests.unit.controllers.servingjob.servers import Servers

PINNED = "registry.example.com/llm@sha256:" + "0" * 64


def roles(image: str) -> list[dict[str, Any]]:
    container = {
        "name": "server",
        "image": image,
        "command": ["vllm", "serve"],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return [{"name": "worker", "template": {"spec": {"containers": [container]}}}]


def test_findings_are_shown_and_go_with_the_setting() -> None:
    servers = Servers(roles=roles("llm"), lint={}).settle()
    assert servers.condition["Advice"] == ("True", "RulesViolated")
    assert [one.rule for one in servers.job.status.advice] == ["T01"]
    assert servers.job.status.ready == "2/2", "it only warns"
    servers.edit(lint=None).settle()
    assert "Advice" not in servers.condition
    assert servers.job.status.advice == []


def test_a_denied_job_starts_after_the_remedy() -> None:
    servers = Servers(roles=roles("llm"), lint={"enforce": "Deny"}).settle()
    assert servers.condition["Valid"] == ("False", "AdviceDenied")
    assert servers.pods == {}
    servers.edit(roles=roles(PINNED)).settle()
    assert servers.condition["Valid"] == ("True", "Accepted")
    assert servers.condition["Advice"] == ("False", "RulesKept")
    assert servers.job.status.ready == "2/2"


def test_replicas_of_the_last_valid_spec_go_on() -> None:
    servers = Servers(roles=roles(PINNED), lint={"enforce": "Deny"}).settle()
    servers.edit(roles=roles("llm")).settle()
    assert servers.condition["Valid"] == ("False", "AdviceDenied")
    assert servers.job.status.ready == "2/2"
