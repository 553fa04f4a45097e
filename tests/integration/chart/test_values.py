"""Tests that values.yaml and values.schema.json agree, and that helm's error for an invalid value names the
value.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from convoy_agents.settings import Settings as AgentSettings
from convoy_operator.dashboard.settings import PREFIX, DashboardSettings
from convoy_operator.settings import PREFIX as OPERATOR_PREFIX
from convoy_operator.settings import Settings

from .conftest import CHART, one, render

VALUES = (CHART / "values.yaml").read_text()
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
HELM_VALUES = {"global"}
"""Values that belong to helm. A parent chart may set them, and they have no default."""


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema or, if it is a reference, the definition to which it refers."""
    name = str(schema.get("$ref", "")).removeprefix("#/definitions/")
    return SCHEMA["definitions"][name] if name else schema


def in_schema(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the schema of every setting. A map with keys that the user chooses counts as one
    setting.
    """
    found = resolved(schema)
    closed = found.get("additionalProperties") is False
    for name, inner in (found.get("properties") or {}).items() if closed else ():
        where = f"{path}.{name}" if path else name
        if where not in HELM_VALUES and not where.endswith(".claims"):
            yield where, inner
            yield from in_schema(inner, where)


def in_values(values: Mapping[str, Any], closed: set[str], path: str = "") -> Iterator[str]:
    """Yield the path of every setting that has a default. The entries of the maps in `closed` are settings
    too.
    """
    for name, value in values.items():
        where = f"{path}.{name}" if path else name
        yield where
        if where in closed and isinstance(value, dict):
            yield from in_values(value, closed, where)


def closed_maps() -> set[str]:
    return {
        path for path, schema in in_schema(SCHEMA) if resolved(schema).get("additionalProperties") is False
    }


def optional(path: str) -> bool:
    """Return True if the setting is an entry of a map that is empty by default, such as
    operator.affinity.nodeAffinity.
    """
    found: Any = yaml.safe_load(VALUES)
    for name in path.split(".")[:-1]:
        found = found[name]
    return found == {}


def test_every_default_is_in_the_schema_and_every_setting_has_a_default() -> None:
    named = {path for path, _ in in_schema(SCHEMA)}
    given = set(in_values(yaml.safe_load(VALUES), closed_maps()))
    assert given - named == set(), "not in the schema"
    assert {path for path in named - given if not optional(path)} == set(), "not in values.yaml"


def test_every_setting_is_described_in_values_and_schema() -> None:
    parts_of_kubernetes = r"\.(resources\.\w+|affinity\.\w+)$"
    for path, schema in in_schema(SCHEMA):
        if not re.search(parts_of_kubernetes, path):
            assert schema.get("description"), f"{path} has no description in the schema"
    lines = VALUES.splitlines()
    for above, line in pairwise(lines):
        if re.match(r" *(?!requests|limits)[A-Za-z]+:", line):
            assert above.strip().startswith("#"), f"{line!r} has no comment above it"


@pytest.mark.parametrize(
    "setting",
    [
        "imagess.registry=x",
        "images.tagg=x",
        "images.tag=a b",
        "images.registry=example.com/",
        "images.registry=https://example.com",
        "images.pullPolicy=Sometimes",
        "images.digests.operator=sha256:7",
        "images.digests.agent=v7",
        "images.digests.test=",
        "images.operator=",
        "images.pullSecrets={a}",
        "crds.enabled=perhaps",
        "engines.enabled=1",
        "operator.replicas=0",
        "operator.replicas=two",
        "operator.logLevel=LOUD",
        "operator.qps=-1",
        "operator.burst=1.5",
        "operator.storeSecrets={A_B}",
        "operator.resources.request.cpu=1",
        "operator.nodeSelector.gpu=true",
        "operator.tolerations[0].effect=Never",
        "operator.affinity.podAfinity.x=1",
        "operator.topologySpreadConstraints[0].whenUnsatisfiable=Never",
        "operator.env.a-b=1",
        "operator.podDisruptionBudget.minAvailable=2",
        "agent.kubeletDir=relative",
        "agent.storeVolumes={../etc}",
        "agent.storeVolumes={a,a}",
        "agent.checkpointMemoryMiB=-1",
        "agent.checkpointMemoryMiB=1Gi",
        "agent.resources.requests.memory=1Gi",
        "agent.resources.limits.memoryMiB=63",
        "agent.logLevel=",
        "agent.maxUnavailable=0",
        "agent.maxUnavailable=0%",
        "agent.priorityClassName=A_B",
        "agent.podLabels.app\\.kubernetes\\.io/name=x",
        "operator.podAnnotations.convoy\\.dev/engines=x",
        "dashboard.affinity.podAfinity.x=1",
        "dashboard.topologySpreadConstraints={zone}",
        "dashboard.ingress.enabled=maybe",
        "dashboard.ingress.host=*.example.com",
        "dashboard.ingress.host=https://jobs.example.com",
        "dashboard.ingress.path=/convoy",
        "dashboard.ingress.annotations.a=1",
        "dashboard.ingress.tls.mode=",
        "dashboard.ingress.tls.secretName=A_B",
        "dashboard.ingress.hosts={a}",
        "admission.trainingJobs.enabled=1",
        "admission.trainingJobs.namespaceSelector.matchLabel.a=b",
        "admission.trainingJobs.namespaceSelector.matchExpressions[0].operator=Is",
        "admission.trainingJobs.localMemory.most=8GB",
        "admission.trainingJobs.localMemory.required=8Gi",
        "agent.tolerations[0].key=1",
        "networkPolicies.enabled=maybe",
        "networkPolicies.metricsFrom[0].namespace=monitoring",
        "networkPolicies.metricsFrom[0].ipBlock.cidr=10.0.0.1",
        "networkPolicies.apiServer.cidrs={10.0.0.1}",
        "networkPolicies.apiServer.ports={0}",
        "networkPolicies.apiServer.ports={https}",
        "networkPolicies.dns.from=x",
        "networkPolicies.stores.ports={70000}",
        "rbac.aggregate=view",
        "dashboard.auth.proxyCIDRs={10.0.0.0/1000}",
        "test.engine=",
        "test.seconds=10",
        "test.params=steps",
        "test.tolerations[0].effect=Never",
        "certificates.mode=Vault",
        "monitoring.runbooks=docs/runbooks",
        "monitoring.serviceMonitor.interval=often",
        "monitoring.serviceMonitor.namespace=A",
        "monitoring.prometheusRule.labels.release=1",
        "monitoring.prometheusRule.interval=1m",
        "monitoring.grafanaDashboards.enabled=yes",
    ],
)
def test_invalid_values_are_rejected_by_name(helm: Path, setting: str) -> None:
    path = setting.split("=", maxsplit=1)[0]
    with pytest.raises(ValueError, match="values don't meet the specifications of the schema") as refused:
        render(helm, setting)
    # helm's message names the unknown key or the map that contains it.
    named = re.split(r"[.\[]", path)
    assert any(name in str(refused.value) for name in named[-2:]), refused.value


@pytest.mark.parametrize(
    ("part", "kind"), [("operator", "Deployment"), ("agent", "DaemonSet"), ("dashboard", "Deployment")]
)
def test_variables_that_the_chart_sets_cannot_be_overridden(helm: Path, part: str, kind: str) -> None:
    body = one(render(helm, "dashboard.enabled=true"), kind, f"convoy-{part}")
    names = [entry["name"] for entry in body["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert len(set(names)) == len(names) > 4
    given = SCHEMA["properties"][part]["properties"]["env"]["propertyNames"]["not"]["pattern"]
    assert [name for name in names if not re.search(given, name)] == []
    with pytest.raises(ValueError, match=names[0]):
        render(helm, f"{part}.env.{names[0]}=x")
    render(helm, f"{part}.env.{names[0]}_MORE=x")


FOLLOWED = {
    "operator": {
        *(
            f"{OPERATOR_PREFIX}{item.name.upper()}"
            for item in fields(Settings)
            if item.name.endswith("_port")
        ),
        "CONVOY_AGENT_SERVICE_ACCOUNT",
    },
    "agent": {
        str(item.metadata["env"])
        for item in fields(AgentSettings)
        if item.name.endswith(("_port", "_dir", "_file")) and item.name not in {"api_port", "probe_dir"}
    },
    "dashboard": {
        f"{PREFIX}{item.name.upper()}" for item in fields(DashboardSettings) if item.name.endswith("port")
    },
}
"""Variables whose values the chart's templates also contain, for ports of Services, probes and policies,
for accounts, and for mounts. A user must not set them.
"""


@pytest.mark.parametrize("part", FOLLOWED)
def test_variables_that_other_objects_depend_on_are_rejected(helm: Path, part: str) -> None:
    names = FOLLOWED[part]
    assert len(names) > 2
    accepted = []
    for name in names:
        try:
            render(helm, f"{part}.env.{name}=7")
        except ValueError as refused:
            assert name in str(refused)
        else:
            accepted.append(name)
    assert accepted == []
    render(helm, f"{part}.env.CONVOY_MORE=7")


ADDED = (
    "images.digests",
    "operator.topologySpreadConstraints",
    "dashboard.topologySpreadConstraints",
    "dashboard.ingress",
    "admission",
    "checkpoints",
    "guard",
    "agent.models",
    "test.tolerations",
)
"""Values that the release in the cluster may lack. `helm upgrade --reuse-values` then leaves them unset."""
ASKED = (
    "dashboard.enabled=true",
    "dashboard.ingress.enabled=true",
    "dashboard.ingress.host=jobs.example.com",
    "admission.trainingJobs.enabled=true",
)


def lacking(folder: Path) -> Path:
    """Return a copy of the chart in which these values have no defaults."""
    chart = folder / "convoy"
    shutil.copytree(CHART, chart)
    values = yaml.safe_load(VALUES)
    for path in ADDED:
        *above, name = path.split(".")
        inner = values
        for part in above:
            inner = inner[part]
        del inner[name]
    (chart / "values.yaml").write_text(yaml.safe_dump(values))
    return chart


@pytest.mark.parametrize(
    "settings", [(), ("dashboard.enabled=true",), ASKED], ids=["defaults", "dashboard", "asked for"]
)
def test_an_upgrade_fills_missing_settings_with_defaults(
    helm: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    assert render(helm, *settings, chart=lacking(tmp_path)) == render(helm, *settings)
