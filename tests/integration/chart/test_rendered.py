"""Tests of all rendered objects together: a plain cluster accepts them, all containers have limits, and
helm prints the next steps.
"""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any

import pytest
from e2e.cluster.errors import ClusterError
from e2e.cluster.run import run

from convoy_crds.kinds import KINDS
from convoy_operator.uninstall import JOB_KINDS

from .conftest import CHART, NAMESPACE, Bodies, render

EVERYTHING = {
    "operator": {
        "storeSecrets": ["s3"],
        "priceConfigMaps": ["prices"],
        "nodeSelector": {"a": "b"},
        "env": {"CONVOY_WORKERS": 4},
    },
    "agent": {
        "storeVolumes": ["claim"],
        "env": {"CONVOY_COPY_RATE": 1e9},
        "maxUnavailable": 3,
        "priorityClassName": "",
        "podLabels": {"team": "a"},
        "podAnnotations": {"team": "a"},
        "affinity": {"nodeAffinity": {}},
    },
    "images": {"pullSecrets": [{"name": "pull"}], "registry": "registry.example.com", "tag": "v7"},
    "admission": {"trainingJobs": {"enabled": True, "localMemory": {"most": "8Gi"}}},
    "networkPolicies": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {}}],
        "apiServer": {"cidrs": ["10.0.0.1/32", "fd00::1/128"]},
        "stores": {"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]},
    },
    "monitoring": {"grafanaDashboards": {"enabled": True}},
    "dashboard": {
        "enabled": True,
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}
        ],
        "ingress": {"enabled": True, "host": "jobs.example.com", "tls": {"secretName": "cert"}},
    },
}
"""Values that enable all features that need nothing else to be installed."""
OPTIONAL = {
    "monitoring": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    "certificates": {"mode": "CertManager"},
}
LINUX = {"kubernetes.io/os": "linux"}
APIS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
CLUSTER_WIDE = {
    "ClusterRole", "ClusterRoleBinding", "CSIDriver", "CustomResourceDefinition",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "Ingress": "ingresses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
OUTSIDE = (
    "dashboard.enabled=true",
    "dashboard.ingress.enabled=true",
    "dashboard.ingress.host=jobs.example.com",
)
EVERY = [
    pytest.param({}, (), id="defaults"),
    pytest.param(EVERYTHING, (), id="everything"),
    pytest.param(OPTIONAL, APIS, id="what others must be there for"),
]


def collection(body: dict[str, Any]) -> str:
    """Return the path to which objects of this kind are posted."""
    version, kind = body["apiVersion"], body["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = PLURALS.get(kind, kind.lower() + "s")
    if kind in CLUSTER_WIDE:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{body['metadata']['namespace']}/{plural}"


def pods(bodies: Bodies) -> dict[str, dict[str, Any]]:
    """Return every pod template, by the object that owns it."""
    return {
        f"{body['kind']} {body['metadata']['name']}": body["spec"]["template"]
        for body in bodies
        if body["kind"] in {"Deployment", "DaemonSet", "Job"}
    }


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_a_plain_cluster_accepts_every_object_and_field(
    control_plane: Any, helm: Path, values: dict[str, Any]
) -> None:
    try:
        control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    except urllib.error.HTTPError as refused:
        assert refused.code == 409
    for body in render(helm, values=values):
        path = f"{collection(body)}?dryRun=All&fieldValidation=Strict"
        try:
            control_plane.request("POST", path, body)
        except urllib.error.HTTPError as refused:
            # The fixture has already installed these objects.
            assert refused.code == 409, (
                f"{body['kind']} {body['metadata']['name']}: {refused.read().decode()}"
            )


@pytest.mark.parametrize(("values", "apis"), EVERY)
def test_objects_are_unique_and_labelled(helm: Path, values: dict[str, Any], apis: tuple[str, ...]) -> None:
    bodies = render(helm, values=values, apis=apis)
    names = [(b["kind"], b["metadata"].get("namespace"), b["metadata"]["name"]) for b in bodies]
    assert len(set(names)) == len(names)
    for body in bodies:
        if body["kind"] != "CustomResourceDefinition":
            assert body["metadata"]["labels"]["app.kubernetes.io/part-of"] == "convoy"
            assert ("namespace" in body["metadata"]) is (body["kind"] not in CLUSTER_WIDE)


@pytest.mark.parametrize(("values", "apis"), EVERY)
def test_every_container_is_bounded_and_all_but_the_agent_are_restricted(
    helm: Path, values: dict[str, Any], apis: tuple[str, ...]
) -> None:
    found = pods(render(helm, values=values, apis=apis))
    assert set(found) - {"Deployment convoy-dashboard"} == {
        "Deployment convoy-operator",
        "DaemonSet convoy-agent",
        "Job convoy-has-no-jobs-left",
        "Job convoy-leaves-nothing",
        "Job convoy-trains-a-job",
    }
    assert ("Deployment convoy-dashboard" in found) is (values is EVERYTHING)
    for owner, template in found.items():
        spec = template["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        for container in spec["containers"]:
            resources, security = container["resources"], container["securityContext"]
            assert {"cpu", "memory"} <= set(resources["requests"]) and "memory" in resources["limits"], owner
            assert security["readOnlyRootFilesystem"] is True, owner
            if owner == "DaemonSet convoy-agent":
                continue
            assert spec["securityContext"]["runAsNonRoot"] is True, owner
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, owner
            assert security["allowPrivilegeEscalation"] is False, owner
            assert security["capabilities"] == {"drop": ["ALL"]}, owner
            assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume], owner


def test_the_values_for_every_pod_reach_every_pod(helm: Path) -> None:
    for owner, template in pods(render(helm, values=EVERYTHING)).items():
        spec = template["spec"]
        assert spec["imagePullSecrets"] == [{"name": "pull"}], owner
        for container in spec["containers"]:
            assert container["image"].startswith("registry.example.com/convoy/"), owner
            assert container["image"].endswith(":v7"), owner
        if owner != "DaemonSet convoy-agent":
            assert spec["nodeSelector"] == {**LINUX, "a": "b"}, owner


def test_pods_select_only_suitable_nodes_by_default(helm: Path) -> None:
    for owner, template in pods(render(helm, "dashboard.enabled=true")).items():
        assert template["spec"]["nodeSelector"] == LINUX, owner
    others = {
        part: {"nodeSelector": {"kubernetes.io/os": None}} for part in ("operator", "agent", "dashboard")
    }
    for owner, template in pods(render(helm, "dashboard.enabled=true", values=others)).items():
        assert "nodeSelector" not in template["spec"], owner


def test_each_host_access_of_the_agent_has_a_comment() -> None:
    lines = [line.strip() for line in (CHART / "templates" / "agent.yaml").read_text().splitlines()]
    needs = [
        n
        for n, line in enumerate(lines)
        if "mountPath:" in line or line.startswith(("privileged", "runAs", "hostPID"))
    ]
    assert len(needs) == 10
    for number in needs:
        above = next(line for line in reversed(lines[:number]) if not line.startswith("{{"))
        assert above.startswith("#"), lines[number]


@pytest.mark.parametrize(
    ("settings", "present", "absent"),
    [
        (
            (),
            (
                "helm test convoy -n convoy-system",
                "push them with `make images",
                "monitoring.prometheusRule",
                "helm uninstall convoy -n convoy-system --no-hooks",
                *(f"kubectl delete {kind.plural} --all -A" for kind in JOB_KINDS),
            ),
            ("NetworkPolicies are enabled", "get certificate"),
        ),
        (
            ("images.registry=r", "images.tag=t", "networkPolicies.enabled=true"),
            ("NetworkPolicies are enabled", "networkPolicies.metricsFrom is empty", "rollout status"),
            ("make images", "dashboard"),
        ),
        (
            ("dashboard.enabled=true",),
            ("port-forward service/convoy-dashboard 8090:80", "create token", "--clusterrole=view"),
            ("convoy-trainingjobs-viewer", "sees everything", "your proxy"),
        ),
        (
            ("dashboard.enabled=true", "rbac.aggregate=false"),
            ("--clusterrole=convoy-trainingjobs-viewer", "create token"),
            (),
        ),
        (
            ("dashboard.enabled=true", "dashboard.auth.mode=None"),
            ("port-forward service/convoy-dashboard 8090:80", "sees everything"),
            ("create token",),
        ),
        (
            (
                "dashboard.enabled=true",
                "dashboard.auth.mode=Proxy",
                "dashboard.auth.proxyCIDRs={10.0.0.0/8,fd00::/8}",
            ),
            ("only from your proxy at 10.0.0.0/8, fd00::/8.",),
            ("port-forward", "create token"),
        ),
        (
            (
                *OUTSIDE,
                "networkPolicies.enabled=true",
                "networkPolicies.pagesFrom[0].ipBlock.cidr=10.0.0.0/8",
            ),
            (
                "is at https://jobs.example.com,",
                "create token",
                "networkPolicies.pagesFrom must include the controller's pods",
                "set dashboard.auth.proxyCIDRs to the addresses of its pods",
            ),
            ("port-forward service", "without TLS", "trusts"),
        ),
        (
            (*OUTSIDE, "dashboard.ingress.tls.mode=None", "dashboard.auth.proxyCIDRs={10.0.0.0/8}"),
            ("is at http://jobs.example.com,", "Browsers send tokens and cookies without TLS"),
            ("pagesFrom", "failed logins"),
        ),
        (
            (
                *OUTSIDE,
                "dashboard.auth.mode=Proxy",
                "dashboard.auth.proxyCIDRs={10.0.0.0/8}",
                "dashboard.ingress.authenticates=true",
            ),
            ("trusts the controller at 10.0.0.0/8 to authenticate users",),
            ("create token", "your proxy", "failed logins"),
        ),
        (
            ("images.registry=r", "images.digests.operator=sha256:" + "7" * 64),
            ("rollout status",),
            ("make images",),
        ),
    ],
)
def test_helm_notes_contain_the_next_steps(
    control_plane: Any,
    helm: Path,
    settings: tuple[str, ...],
    present: tuple[str, ...],
    absent: tuple[str, ...],
) -> None:
    command = [helm, "install", "convoy", CHART, f"--namespace={NAMESPACE}", "--dry-run=client"]
    # The fixture has installed the CustomResourceDefinitions, and other tests the dashboard's ClusterRoles.
    command += ["--set=crds.enabled=false", "--take-ownership"]
    environment = {"KUBECONFIG": str(control_plane.kubeconfig())}
    text = run([*command, *(f"--set={one}" for one in settings)], deadline=60, env=environment)
    notes = text.partition("\nNOTES:\n")[2]
    assert [words for words in present if words not in notes] == []
    assert [words for words in absent if words in notes] == []


def test_the_page_deletes_every_kind_that_blocks_an_uninstallation() -> None:
    page = (CHART.parents[1] / "docs" / "install.md").read_text()
    needed = [f"kubectl delete {kind.plural} --all -A --cascade=foreground" for kind in JOB_KINDS]
    assert [words for words in needed if words not in page] == []
    removed = " ".join(line for line in page.splitlines() if line.startswith("kubectl delete crd "))
    assert [kind.plural for kind in KINDS if f"{kind.plural}.convoy.dev" not in removed] == []


@pytest.mark.parametrize(
    ("way", "accepted"), [((), False), (("--take-ownership",), True), (("--set=crds.enabled=false",), True)]
)
def test_definitions_left_by_another_release_do_not_prevent_an_install(
    control_plane: Any, helm: Path, way: tuple[str, ...], accepted: bool
) -> None:
    """The CustomResourceDefinitions of the fixture belong to no release, which docs/install.md explains."""
    command: list[str | Path] = [
        helm,
        "install",
        "other",
        CHART,
        "--namespace=default",
        "--dry-run=server",
        *way,
    ]
    environment = {"KUBECONFIG": str(control_plane.kubeconfig())}
    try:
        run(command, deadline=60, env=environment)
    except ClusterError as refused:
        assert not accepted and "CustomResourceDefinition" in str(refused) and "ownership" in str(refused)
    else:
        assert accepted
