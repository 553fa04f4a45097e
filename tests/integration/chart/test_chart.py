"""Tests of the objects that helm renders from the chart."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from convoy_agents.settings import Settings
from convoy_crds.engine import Engine
from convoy_crds.params import schema_error
from convoy_operator import catalogue
from convoy_operator.hub.memory_release import RELEASE_SECONDS

from .conftest import CHART, one, render
from .test_rendered import pods


def test_the_chart_passes_helm_lint(helm: Path) -> None:
    subprocess.run([str(helm), "lint", "--strict", str(CHART)], check=True, capture_output=True, timeout=60)


def test_definitions_are_kept_at_uninstall_by_default(helm: Path) -> None:
    kept = one(render(helm), "CustomResourceDefinition", "trainingjobs.convoy.dev")
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    loose = one(render(helm, "crds.keep=false"), "CustomResourceDefinition", "trainingjobs.convoy.dev")
    assert "annotations" not in loose["metadata"]
    assert not [b for b in render(helm, "crds.enabled=false") if b["kind"] == "CustomResourceDefinition"]


def test_engines_run_the_image_of_the_values(helm: Path) -> None:
    bodies = render(helm, "images.registry=registry.example.com", "images.tag=v7")
    files = one(bodies, "ConfigMap", "convoy-engines")["data"]
    engine = Engine.model_validate(yaml.safe_load(files["gpt.yaml"]))
    assert engine.spec.image == "registry.example.com/convoy/workloads:v7"
    assert one(render(helm, "engines.enabled=false"), "ConfigMap", "convoy-engines").get("data") is None


def test_the_operator_accepts_every_engine_that_helm_renders(helm: Path, tmp_path: Path) -> None:
    files = one(render(helm), "ConfigMap", "convoy-engines")["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    engines = catalogue.read(tmp_path)
    assert len(engines) == len(files) > 10
    errors = {engine.metadata.name: schema_error(engine.spec.params_schema) for engine in engines}
    assert {name: error for name, error in errors.items() if error} == {}


def test_a_digest_replaces_only_the_tag_of_its_own_image(helm: Path) -> None:
    digest = "sha256:" + "0a" * 32
    bodies = render(
        helm, "images.registry=r.example.com", "images.tag=v7", "dashboard.enabled=true",
        f"images.digests.workloads={digest}", f"images.digests.operator={digest}",
    )  # fmt: skip
    files = one(bodies, "ConfigMap", "convoy-engines")["data"]
    engine = Engine.model_validate(yaml.safe_load(files["gpt.yaml"]))
    assert engine.spec.image == f"r.example.com/convoy/workloads@{digest}"
    images = {container["image"] for pod in pods(bodies).values() for container in pod["spec"]["containers"]}
    assert images == {
        f"r.example.com/convoy/operator@{digest}",
        "r.example.com/convoy/agent:v7",
        "r.example.com/convoy/dashboard:v7",
    }


def test_operator_replicas_are_spread_without_blocking_scheduling(helm: Path) -> None:
    template = one(render(helm), "Deployment", "convoy-operator")["spec"]["template"]
    found = template["spec"]["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in found] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for one_of_them in found:
        assert (one_of_them["maxSkew"], one_of_them["whenUnsatisfiable"]) == (1, "ScheduleAnyway")
        assert one_of_them["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (term,) = template["spec"]["affinity"]["podAntiAffinity"].values()
    assert term[0]["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize("part", ["operator", "dashboard"])
def test_a_spread_constraint_counts_its_selected_pods_or_those_of_the_part(helm: Path, part: str) -> None:
    rack = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**rack, "labelSelector": {"matchLabels": {"team": "a"}}}
    values = {part: {"topologySpreadConstraints": [rack, own]}}
    bodies = render(helm, "dashboard.enabled=true", values=values)
    template = one(bodies, "Deployment", f"convoy-{part}")["spec"]["template"]
    first, second = template["spec"]["topologySpreadConstraints"]
    labels = first.pop("labelSelector")["matchLabels"]
    assert (first, second) == (rack, own)
    assert labels["app.kubernetes.io/component"] == part
    assert labels.items() <= template["metadata"]["labels"].items()


def test_the_dashboard_is_not_spread_by_default(helm: Path) -> None:
    pod = one(render(helm, "dashboard.enabled=true"), "Deployment", "convoy-dashboard")["spec"]["template"]
    assert "topologySpreadConstraints" not in pod["spec"]


def test_only_the_agent_is_privileged_and_the_operator_passes_the_restricted_standard(helm: Path) -> None:
    bodies = render(helm)
    agent = one(bodies, "DaemonSet", "convoy-agent")["spec"]["template"]["spec"]
    assert agent["containers"][0]["securityContext"]["privileged"] is True
    assert agent["automountServiceAccountToken"] is False
    operator = one(bodies, "Deployment", "convoy-operator")["spec"]["template"]["spec"]
    security = operator["containers"][0]["securityContext"]
    assert operator["securityContext"]["runAsNonRoot"] is True
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})
    assert "privileged" not in security


def test_no_role_has_a_wildcard_and_agents_have_no_role(helm: Path) -> None:
    bodies = render(helm)
    for role in (body for body in bodies if body["kind"] in ("ClusterRole", "Role")):
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    bound = [s["name"] for b in bodies if b["kind"].endswith("RoleBinding") for s in b["subjects"]]
    assert set(bound) == {"convoy-operator", "convoy-uninstall", "convoy-uninstalled", "convoy-test"}


def test_the_operator_reads_the_leases_of_kubelets_and_no_others(helm: Path) -> None:
    bodies = render(helm)
    roles = {b["metadata"]["namespace"]: b["rules"] for b in bodies if b["kind"] == "Role"}
    (rule,) = roles.pop("kube-node-lease")
    assert rule == {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    assert set(roles) == {"convoy-system"}
    bindings = [b for b in bodies if b["kind"] == "RoleBinding"]
    (binding,) = [b for b in bindings if b["metadata"]["namespace"] == "kube-node-lease"]
    assert binding["subjects"][0]["namespace"] == "convoy-system"


@pytest.mark.parametrize(
    ("settings", "names"), [((), None), (("operator.storeSecrets={s3,backup}",), ["s3", "backup"])]
)
def test_the_operator_reads_secrets_by_name_in_its_own_namespace(
    helm: Path, settings: tuple[str, ...], names: list[str] | None
) -> None:
    found = [
        (body["kind"], body["metadata"].get("namespace"), rule)
        for body in render(helm, *settings)
        if body["kind"] in ("ClusterRole", "Role")
        for rule in body["rules"]
        if "secrets" in rule["resources"] and rule["verbs"] != ["create"]
    ]
    assert {(kind, namespace) for kind, namespace, _ in found} == {("Role", "convoy-system")}
    assert all(rule["verbs"] == ["get"] for _, _, rule in found)
    assert [rule.get("resourceNames") for _, _, rule in found] == [["convoy-ca"], names]


def test_the_operator_writes_only_the_status_of_a_store(helm: Path) -> None:
    bodies = render(helm)
    rules = one(bodies, "ClusterRole", "convoy-operator")["rules"]
    verbs = {
        resource: rule["verbs"]
        for rule in rules
        for resource in rule["resources"]
        if resource.startswith("checkpointstores")
    }
    assert verbs == {
        "checkpointstores": ["list", "watch"],
        "checkpointstores/status": ["patch"],
    }
    assert one(bodies, "CustomResourceDefinition", "checkpointstores.convoy.dev")


def test_each_checkpoint_claim_is_mounted_at_the_path_that_agents_use(helm: Path) -> None:
    def pod(*settings: str) -> dict[str, Any]:
        return dict(one(render(helm, *settings), "DaemonSet", "convoy-agent")["spec"]["template"]["spec"])

    plain, mounting = pod(), pod("agent.storeVolumes={checkpoints,team.b}")
    more = [volume for volume in mounting["volumes"] if volume not in plain["volumes"]]
    claims = {volume["name"]: volume["persistentVolumeClaim"] for volume in more}
    assert list(claims.values()) == [{"claimName": "checkpoints"}, {"claimName": "team.b"}]
    mounts = mounting["containers"][0]["volumeMounts"]
    where = {mount["name"]: mount for mount in mounts if mount["name"] in claims}
    for name, claim in claims.items():
        path = str(Settings("n", "::1").stores_dir / claim["claimName"])
        assert where[name] == {"name": name, "mountPath": path}
    assert [mount for mount in mounts if mount["name"] not in claims] == plain["containers"][0][
        "volumeMounts"
    ]


def test_a_pre_delete_hook_checks_for_remaining_jobs(helm: Path) -> None:
    bodies = render(helm, "images.registry=registry.example.com", "images.tag=v7")
    hooks = [
        b for b in bodies if (b["metadata"].get("annotations") or {}).get("helm.sh/hook") == "pre-delete"
    ]
    assert [b["kind"] for b in hooks] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"]
    pod = hooks[-1]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example.com/convoy/operator:v7"
    assert (pod["serviceAccountName"], pod["securityContext"]["runAsNonRoot"]) == ("convoy-uninstall", True)
    assert hooks[-1]["spec"]["backoffLimit"] == 0
    seconds, undo = pod["containers"][0]["args"]
    assert float(seconds) > 2 * RELEASE_SECONDS, "agents have been told to give memory back"
    assert float(seconds) < hooks[-1]["spec"]["activeDeadlineSeconds"] / 4
    assert undo == "helm rollback convoy 1 -n convoy-system"
    after = [
        b for b in bodies if (b["metadata"].get("annotations") or {}).get("helm.sh/hook") == "post-delete"
    ]
    assert [b["kind"] for b in after] == [
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Job",
    ]  # fmt: skip
    assert all("hook-succeeded" in b["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for b in after)
    deadlines = [b["spec"]["activeDeadlineSeconds"] for b in hooks + after if b["kind"] == "Job"]
    assert len(deadlines) == 2 and all(180 < seconds < 300 for seconds in deadlines), "helm waits for 300"
    # Only the hooks above are hooks. Helm would not delete another object together with the release if the
    # object were a hook.
    assert not [b for b in bodies if b not in hooks + after and "uninstall" in b["metadata"]["name"]]
