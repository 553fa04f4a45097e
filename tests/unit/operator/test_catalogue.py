"""Tests of the Engines and of the GuardPolicy that the leading operator applies for the chart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convoy_controllers.nodehealth.observe import in_order
from convoy_controllers.resources import GUARD_POLICIES
from convoy_crds.guardpolicy import GuardPolicy
from convoy_operator import errors
from convoy_operator.catalogue import LOWEST_PRIORITY, install_policy, read

from .conftest import FakeApi

OWN = {"app.kubernetes.io/managed-by": "convoy-operator"}
ENGINE = """
apiVersion: convoy.dev/v1alpha1
kind: Engine
metadata: {name: toy}
spec:
  description: "1e-06"
  image: toy
  command: [toy]
  roleKind: Training
  paramsSchema: {type: object, properties: {rate: {type: number, minimum: 1e-06, maximum: 1e+06}}}
"""


def stored(api: FakeApi) -> GuardPolicy | None:
    found = api.objects.get((GUARD_POLICIES.plural, "", "default"))
    return GuardPolicy.model_validate(found) if found is not None else None


def test_numbers_that_helm_writes_with_an_exponent_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(ENGINE)
    [engine] = read(tmp_path)
    assert engine.spec.params_schema["properties"]["rate"] == {
        "type": "number",
        "minimum": 1e-6,
        "maximum": 1e6,
    }
    assert engine.spec.description == "1e-06"


@pytest.mark.parametrize("mode", ["Observe", "Act"])
def test_the_policy_has_the_mode_of_the_chart(api: FakeApi, virtual: Callable[..., Any], mode: str) -> None:
    virtual(install_policy(api, mode))
    found = stored(api)
    assert found is not None
    assert (found.spec.mode, found.spec.priority, found.metadata.labels) == (mode, LOWEST_PRIORITY, OWN)
    assert found.spec.selector.matches({"any": "node"}), "the policy covers all nodes"
    assert found.spec.sweeps is None, "a sweep uses the whole node, which may run pods of others"


def test_any_other_policy_takes_precedence(api: FakeApi, virtual: Callable[..., Any]) -> None:
    virtual(install_policy(api, "Observe"))
    own = stored(api)
    other = GuardPolicy.model_validate({"metadata": {"name": "zzz"}, "spec": {"priority": -999}})
    assert own is not None and in_order([own, other]) == [other, own]


def test_without_a_mode_only_the_policy_of_the_operator_is_deleted(
    api: FakeApi, virtual: Callable[..., Any]
) -> None:
    virtual(install_policy(api, "None"))
    assert stored(api) is None and api.calls == [("get", "guardpolicies", "default")]
    virtual(install_policy(api, "Observe"))
    virtual(install_policy(api, "None"))
    assert stored(api) is None


@pytest.mark.parametrize("mode", ["Observe", "Act", "None"])
def test_a_policy_of_a_person_stays(api: FakeApi, virtual: Callable[..., Any], mode: str) -> None:
    api.put(GUARD_POLICIES, {"metadata": {"name": "default"}, "spec": {"mode": "Act", "priority": 7}})
    virtual(install_policy(api, mode))
    found = stored(api)
    assert found is not None and (found.spec.mode, found.spec.priority) == ("Act", 7)


def test_the_definition_may_be_created_after_the_operator(api: FakeApi, virtual: Callable[..., Any]) -> None:
    missing = [errors.NotFound(404, "no such resource")] * 3
    api.fail = lambda verb, *_: missing.pop() if verb == "apply" and missing else None
    virtual(install_policy(api, "Observe"))
    assert stored(api) is not None and not missing


def test_a_rejected_policy_is_given_up(api: FakeApi, virtual: Callable[..., Any]) -> None:
    api.fail = lambda verb, *_: errors.Forbidden(403, "no") if verb == "apply" else None
    virtual(install_policy(api, "Observe"))
    assert stored(api) is None
