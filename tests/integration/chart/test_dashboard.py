"""Tests of the dashboard in the chart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from convoy_crds.kinds import KINDS
from convoy_operator.dashboard.settings import LOCAL_NAMES, from_environment

from .conftest import of_kind, one, render

ON = "dashboard.enabled=true"


def settings(bodies: list[dict[str, Any]]) -> Any:
    """Return the dashboard's settings as it reads them from the environment in the chart."""
    container = one(bodies, "Deployment", "convoy-dashboard")["spec"]["template"]["spec"]["containers"][0]
    return from_environment({entry["name"]: entry["value"] for entry in container["env"]})


def test_the_dashboard_is_disabled_by_default(helm: Path) -> None:
    assert not [body for body in render(helm) if body["metadata"]["name"] == "convoy-dashboard"]


def test_the_dashboard_passes_the_restricted_standard_and_writes_only_to_tmp(helm: Path) -> None:
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
    [
        ("Deployment", "convoy-dashboard"),
        ("Deployment", "convoy-operator"),
        ("DaemonSet", "convoy-agent"),
        ("Job", "convoy-has-no-jobs-left"),
        ("Job", "convoy-leaves-nothing"),
        ("Job", "convoy-trains-a-job"),
    ],
)
def test_pods_get_no_service_variables(helm: Path, kind: str, name: str) -> None:
    pod = one(render(helm, ON), kind, name)["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False


def test_the_dashboard_settings_are_those_of_the_values(helm: Path) -> None:
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
def test_invalid_dashboard_values_are_rejected(helm: Path, setting: str) -> None:
    with pytest.raises(ValueError, match="dashboard"):
        render(helm, ON, setting)


@pytest.mark.parametrize("logs", [True, False])
def test_the_dashboard_has_only_rights_to_read_and_to_review_access(helm: Path, logs: bool) -> None:
    bodies = render(helm, ON, f"dashboard.logs={str(logs).lower()}")
    rules = one(bodies, "ClusterRole", "convoy-dashboard")["rules"]
    may = {(verb, one) for rule in rules for one in rule["resources"] for verb in rule["verbs"]}
    kinds = {kind.plural for kind in KINDS} | {"nodes", "pods", "events"}
    read = {(verb, kind) for kind in kinds for verb in ("list", "watch")} - {("watch", "events")}
    reviews = {("create", "tokenreviews"), ("create", "subjectaccessreviews")}
    assert may == read | reviews | {("get", "guardpolicies")} | ({("get", "pods/log")} if logs else set())
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


OUTSIDE = (ON, "dashboard.ingress.enabled=true", "dashboard.ingress.host=jobs.example.com")
PROXY = ("dashboard.auth.mode=Proxy", "dashboard.auth.proxyCIDRs={10.0.0.0/8}")


def test_the_dashboard_has_an_ingress_only_if_both_are_enabled(helm: Path) -> None:
    for settings in ((ON,), OUTSIDE[1:]):
        assert of_kind(render(helm, *settings), "Ingress") == []


def test_the_ingress_routes_the_whole_host_to_the_dashboard(helm: Path) -> None:
    bodies = render(helm, *OUTSIDE, "dashboard.ingress.tls.secretName=cert")
    ingress = one(bodies, "Ingress", "convoy-dashboard")["spec"]
    service = {"name": "convoy-dashboard", "port": {"name": "pages"}}
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": service}}
    assert ingress == {
        "tls": [{"hosts": ["jobs.example.com"], "secretName": "cert"}],
        "rules": [{"host": "jobs.example.com", "http": {"paths": [path]}}],
    }
    bodies = render(helm, *OUTSIDE, "dashboard.ingress.path=/*", "dashboard.ingress.className=alb")
    ingress = one(bodies, "Ingress", "convoy-dashboard")["spec"]
    assert ingress["rules"][0]["http"]["paths"][0]["pathType"] == "ImplementationSpecific"
    assert (ingress["ingressClassName"], ingress["tls"]) == ("alb", [{"hosts": ["jobs.example.com"]}])


@pytest.mark.parametrize(
    ("mode", "named", "secure"), [("Ingress", True, True), ("Elsewhere", False, True), ("None", False, False)]
)
def test_the_session_cookie_is_sent_only_over_tls_if_tls_is_enabled(
    helm: Path, mode: str, named: bool, secure: bool
) -> None:
    bodies = render(helm, *OUTSIDE, f"dashboard.ingress.tls.mode={mode}")
    assert ("tls" in one(bodies, "Ingress", "convoy-dashboard")["spec"]) is named
    assert settings(bodies).secure_cookie is secure


def test_allowed_hosts_are_those_of_ingress_port_forward_and_values(helm: Path) -> None:
    assert settings(render(helm, ON)).allowed_hosts == frozenset()
    assert settings(render(helm, *OUTSIDE)).allowed_hosts == {"jobs.example.com"} | LOCAL_NAMES
    values = {"dashboard": {"env": {"CONVOY_DASHBOARD_HOSTS": "a.example, b.example", "TZ": "UTC"}}}
    bodies = render(helm, *OUTSIDE, values=values)
    assert settings(bodies).allowed_hosts == {"jobs.example.com", "a.example", "b.example"} | LOCAL_NAMES
    pod = one(bodies, "Deployment", "convoy-dashboard")["spec"]["template"]["spec"]
    names = [entry["name"] for entry in pod["containers"][0]["env"]]
    assert len(set(names)) == len(names) and "TZ" in names
    assert settings(render(helm, ON, values=values)).allowed_hosts == {"a.example", "b.example"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (OUTSIDE[:2], "set dashboard.ingress.host, the host name by which browsers reach"),
        (
            (*OUTSIDE, "dashboard.auth.mode=None"),
            "would show everything to anyone who reaches jobs.example.com",
        ),
        ((*OUTSIDE, *PROXY), "set dashboard.ingress.authenticates=true"),
        (
            (*OUTSIDE, "dashboard.ingress.tls.mode=None", "dashboard.auth.secureCookie=true"),
            "without TLS browsers do not send the session's cookie",
        ),
    ],
)
def test_an_unsafe_ingress_is_rejected(helm: Path, given: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        render(helm, *given)


def test_an_authenticating_ingress_allows_a_dashboard_in_proxy_mode(
    helm: Path,
) -> None:
    found = settings(render(helm, *OUTSIDE, *PROXY, "dashboard.ingress.authenticates=true"))
    assert (found.auth_mode, "jobs.example.com" in found.allowed_hosts) == ("Proxy", True)
