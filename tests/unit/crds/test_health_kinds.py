"""Tests of the validation rules and defaults of GuardPolicy, NodeHealth, HealthSweep and node selectors."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from convoy.cli.rules import broken_rules
from convoy_crds import guardpolicy, healthsweep, nodehealth
from convoy_crds.generate import definition
from convoy_crds.guardpolicy import GuardPolicy, Mode, OnJoin
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.kinds import KINDS
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.selector import NodeSelector

SAID = {"reason": "burns in", "user": "ops"}
UNTIL = "2026-01-02T00:00:00Z"
META = {"metadata": {"name": "x"}}


def test_an_empty_policy_only_observes_and_accepts_nodes() -> None:
    spec = GuardPolicy.model_validate(META).spec
    assert (spec.mode, spec.on_join, spec.repair.ladder) == (Mode.OBSERVE, OnJoin.ACCEPT, [])
    assert spec.selector.matches({}) and spec.selector.matches({"a": "b"})


@pytest.mark.parametrize(
    ("expression", "labels", "holds"),
    [
        (("a", "In", ["1", "2"]), {"a": "2"}, True),
        (("a", "In", ["1"]), {"a": "2"}, False),
        (("a", "In", ["1"]), {}, False),
        (("a", "NotIn", ["1"]), {"a": "1"}, False),
        (("a", "NotIn", ["1"]), {"a": "2"}, True),
        (("a", "NotIn", ["1"]), {}, True),
        (("a", "Exists", []), {"a": ""}, True),
        (("a", "Exists", []), {"b": "1"}, False),
        (("a", "DoesNotExist", []), {"a": ""}, False),
        (("a", "DoesNotExist", []), {"b": "1"}, True),
    ],
)
def test_expressions_match_as_in_kubernetes(expression: Any, labels: dict[str, str], holds: bool) -> None:
    key, operator, values = expression
    selector = NodeSelector.model_validate(
        {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
    )
    assert selector.matches(labels) is holds


def test_all_requirements_of_a_selector_must_match() -> None:
    both = NodeSelector.model_validate(
        {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
    )
    assert both.matches({"a": "1", "b": "2"})
    assert (
        not both.matches({"a": "1"})
        and not both.matches({"b": "2"})
        and not both.matches({"a": "2", "b": ""})
    )


@pytest.mark.parametrize(
    ("operator", "values", "good"),
    [
        ("In", ["1"], True),
        ("In", [], False),
        ("NotIn", [], False),
        ("Exists", [], True),
        ("Exists", ["1"], False),
    ],
)
def test_values_of_an_expression_depend_on_its_operator(operator: str, values: list[str], good: bool) -> None:
    spec = {"selector": {"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}}
    broken = broken_rules(guardpolicy.KIND, GuardPolicy.model_validate(META | {"spec": spec}).to_dict())
    assert bool(broken) is not good


@pytest.mark.parametrize(
    ("spec", "good"),
    [
        ({}, True),
        ({"exempt": {**SAID, "until": UNTIL}}, True),
        ({"condemned": SAID}, True),
        ({"exempt": {**SAID, "until": UNTIL}, "condemned": SAID}, False),
        ({"condemned": SAID, "release": {**SAID, "at": UNTIL}}, True),
    ],
)
def test_a_node_is_not_both_exempt_and_condemned(spec: dict[str, Any], good: bool) -> None:
    health = NodeHealth.model_validate(META | {"spec": spec})
    assert bool(broken_rules(nodehealth.KIND, health.to_dict())) is not good


@pytest.mark.parametrize(
    "spec",
    [
        {"exempt": SAID},
        {"exempt": {"until": UNTIL, "user": "ops"}},
        {"condemned": {"reason": "", "user": "ops"}},
        {"condemned": {"reason": "why"}},
        {"release": SAID},
    ],
)
def test_a_decision_needs_a_reason_and_a_user(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NodeHealth.model_validate(META | {"spec": spec})


@pytest.mark.parametrize(
    ("spec", "good"),
    [
        ({"nodes": ["a"]}, True),
        ({"selector": {}}, True),
        ({"nodes": ["a"], "selector": {}}, False),
        ({}, False),
    ],
)
def test_a_sweep_has_either_nodes_or_a_selector(spec: dict[str, Any], good: bool) -> None:
    sweep = HealthSweep.model_validate(META | {"spec": spec})
    assert bool(broken_rules(healthsweep.KIND, sweep.to_dict())) is not good


def test_an_action_of_the_repair_ladder_is_unique() -> None:
    step = {"action": "Reboot", "owner": "medik8s"}
    policy = GuardPolicy.model_validate(META | {"spec": {"repair": {"ladder": [step, step]}}})
    assert any("Reboot" in one for one in broken_rules(guardpolicy.KIND, policy.to_dict()))


@pytest.mark.parametrize("name", ["GuardPolicy", "NodeHealth", "HealthSweep"])
def test_health_kinds_are_cluster_scoped_and_in_the_convoy_category(name: str) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == name)
    body = definition(kind)
    assert body["spec"]["scope"] == "Cluster"
    assert body["spec"]["names"]["categories"] == ["convoy"]


def test_a_status_of_a_later_version_can_be_read() -> None:
    health = NodeHealth.model_validate(META | {"status": {"state": "Suspect", "later": 1}})
    assert health.status.state == "Suspect"
    with pytest.raises(ValidationError):
        NodeHealth.model_validate(META | {"spec": {"later": 1}})
