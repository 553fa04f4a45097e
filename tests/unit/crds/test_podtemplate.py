"""Tests of nulls and nested levels in pod templates and parameters."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from convoy_crds.podtemplate import MAX_DEPTH, PodTemplate, without_nulls
from convoy_crds.trainingjob import EngineRef, Role


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"a": None, "b": 1, "c": False, "d": "", "e": 0}, {"b": 1, "c": False, "d": "", "e": 0}),
        ({"a": {"b": None}}, {"a": {}}),
        ([None, {"a": None}], [None, {}]),
        ({"limits": {"cpu": None}, "labels": {"a": None}}, {"limits": {"cpu": None}, "labels": {"a": None}}),
        ({"limits": None}, {}),
        ({"options": {"a": {"b": None}}}, {"options": {"a": {}}}),
        ("text", "text"),
    ],
)
def test_a_null_field_counts_as_absent(given: Any, kept: Any) -> None:
    assert without_nulls(given) == kept


def test_a_template_of_nulls_is_empty() -> None:
    nulls = {"metadata": {"labels": None, "creationTimestamp": None}, "spec": {"containers": None, "x": None}}
    assert PodTemplate.model_validate(nulls).to_dict() == PodTemplate().to_dict()
    assert PodTemplate.model_validate({"metadata": None, "spec": None}) == PodTemplate()
    assert Role.model_validate({"name": "w", "replicas": 1, "template": None}).template is None


def test_a_null_value_of_a_user_key_is_an_empty_string() -> None:
    spec = {"nodeSelector": {"a": None}, "containers": [{"args": ["a", None]}]}
    made = PodTemplate.model_validate({"metadata": {"annotations": {"a": None}}, "spec": spec}).to_dict()
    assert made["metadata"]["annotations"] == {"a": ""}
    assert (made["spec"]["nodeSelector"], made["spec"]["containers"][0]["args"]) == ({"a": ""}, ["a", ""])


def test_python_attribute_names_are_not_field_names() -> None:
    container = {"volume_mounts": "x"}
    made = PodTemplate.model_validate({"spec": {"containers": [container]}}).spec.containers[0]
    assert made.volume_mounts is None and made.to_dict()["volume_mounts"] == "x"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


def test_nesting_of_templates_and_parameters_is_limited() -> None:
    PodTemplate.model_validate({"spec": {"x": nested(MAX_DEPTH // 2 - 2)}})
    EngineRef.model_validate({"name": "gpt", "params": nested(MAX_DEPTH // 2 - 1)})
    for levels in (MAX_DEPTH // 2 + 1, 150):
        with pytest.raises(ValidationError, match="more than 64 levels"):
            PodTemplate.model_validate({"spec": {"x": nested(levels)}})
        with pytest.raises(ValidationError, match="more than 64 levels"):
            EngineRef.model_validate({"name": "gpt", "params": nested(levels)})


def test_a_null_in_parameters_is_kept() -> None:
    assert EngineRef.model_validate({"name": "gpt", "params": {"a": None}}).params == {"a": None}
