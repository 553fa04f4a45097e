"""The dashboard in the chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convoy_operator.dashboard.settings import from_environment

from .conftest import one, render

ON = "dashboard.enabled=true"


def settings(bodies: list[dict[str, Any]]) -> Any:
    """The dashboard's own reading of what the chart sets."""
    container = one(bodies, "Deployment", "convoy-dashboard")["spec"]["template"]["spec"]["containers"][0]
    return from_environment({entry["name"]: entry["value"] for entry in container["env"]})


def test_there_is_none_unless_it_is_asked_for(helm: Path) -> None:
    assert not [body for body in render(helm) if body["metadata"]["name"] == "convoy-dashboard"]


def test_it_passes_the_restricted_standard_and_writes_to_tmp_alone(helm: Path) -> None:
    pod = one(render(helm, ON), "Deployment", "convoy-dashboard")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
    storage = next(entry["value"] for entry in container["env"] if entry["name"] == "NICEGUI_STORAGE_PATH")
    assert storage.startswith("/tmp/")


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Deployment", "convoy-dashboard"), ("Deployment", "convoy-operator"), ("DaemonSet", "convoy-agent")],
)
def test_services_are_no_settings(helm: Path, kind: str, name: str) -> None:
    pod = one(render(helm, ON), kind, name)["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False


def test_its_settings_are_those_of_the_values(helm: Path) -> None:
    found = settings(render(helm, ON))
    assert (found.auth_mode, found.logs, found.secure_cookie) == ("TokenReview", True, False)
    found = settings(
        render(
            helm, ON, "dashboard.auth.mode=Proxy", "dashboard.auth.proxyCIDRs={10.0.0.0/8,fd00::/8}",
            "dashboard.auth.secureCookie=true", "dashboard.logs=false",
        )
    )  # fmt: skip
    assert (found.auth_mode, found.logs, found.secure_cookie) == ("Proxy", False, True)
    assert [str(network) for network in found.proxies] == ["10.0.0.0/8", "fd00::/8"]


@pytest.mark.parametrize(
    "setting",
    ["dashboard.auth.mode=", "dashboard.auth.mode=none", "dashboard.auth.mode=Proxy",
     "dashboard.auth.mode=null", "dashboard.auth.proxyCIDRs={everybody}", "dashboard.unknown=1"],
)  # fmt: skip
def test_what_cannot_be_is_refused(helm: Path, setting: str) -> None:
    with pytest.raises(ValueError, match="dashboard"):
        render(helm, ON, setting)


@pytest.mark.parametrize("logs", [True, False])
def test_it_reads_and_asks_and_can_do_nothing_else(helm: Path, logs: bool) -> None:
    bodies = render(helm, ON, f"dashboard.logs={str(logs).lower()}")
    rules = one(bodies, "ClusterRole", "convoy-dashboard")["rules"]
    may = {(verb, one) for rule in rules for one in rule["resources"] for verb in rule["verbs"]}
    kinds = {"trainingjobs", "nodehealths", "healthsweeps", "hardwareclasses", "guardpolicies",
             "checkpointstores", "nodes", "pods", "events"}  # fmt: skip
    read = {(verb, kind) for kind in kinds for verb in ("list", "watch")} - {("watch", "events")}
    asked = {("create", "tokenreviews"), ("create", "subjectaccessreviews")}
    assert may == read | asked | {("get", "guardpolicies")} | ({("get", "pods/log")} if logs else set())
    named = [(rule["verbs"], rule["resources"]) for rule in rules if rule.get("resourceNames") == ["default"]]
    assert named == [(["get"], ["guardpolicies"])]
    assert not [
        body for body in bodies if body["kind"] == "Role" and body["metadata"]["name"] == "convoy-dashboard"
    ]


def test_the_image_follows_registry_and_tag(helm: Path) -> None:
    pod = one(
        render(helm, ON, "images.registry=r.example.com", "images.tag=v7"), "Deployment", "convoy-dashboard"
    )
    image = pod["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == "r.example.com/convoy/dashboard:v7"
