"""Tests of the validation of engine parameters against the schema in the Engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from convoy_crds.params import params_error, schema_error

SCHEMA = {
    "properties": {
        "steps": {"type": "integer", "minimum": 1},
        "optimizer": {"type": "object", "properties": {"lr": {"type": "number"}}},
    },
    "required": ["steps"],
}


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "spec.engine.params"),
        ({"steps": 0}, "spec.engine.params.steps"),
        ({"steps": 1, "optimizer": {"lr": "high"}}, "spec.engine.params.optimizer.lr"),
        ({"steps": 1, "step": 1}, "spec.engine.params"),
    ],
)
def test_the_path_of_an_invalid_parameter_is_named(params: dict[str, Any], path: str) -> None:
    error = params_error(SCHEMA, params)
    assert error is not None and error[0] == path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stesp", "unknown parameter 'stesp'; did you mean 'steps'?"),
        ("Steps", "unknown parameter 'Steps'; did you mean 'steps'?"),
        ("colour", "unknown parameter 'colour'; there are: optimizer, steps"),
    ],
)
def test_an_unknown_parameter_gets_a_suggestion(name: str, words: str) -> None:
    assert params_error(SCHEMA, {"steps": 1, name: 1}) == ("spec.engine.params", words)


def test_valid_parameters_pass() -> None:
    assert params_error(SCHEMA, {"steps": 3, "optimizer": {"lr": 0.1}}) is None


def test_a_schema_may_allow_unknown_parameters() -> None:
    assert params_error({**SCHEMA, "additionalProperties": True}, {"steps": 1, "more": 2}) is None


def test_a_broken_schema_is_explained() -> None:
    assert schema_error(SCHEMA) is None
    assert "$.type" in (schema_error({"type": "nonsense"}) or "")
    assert "does not exist" in (schema_error({"$ref": "#/$defs/missing"}) or "")
    deep = {"properties": {"a": {"items": {"$ref": "#/$defs/missing"}}}}
    assert "does not exist" in (schema_error(deep) or "")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"properties": None},
        {"properties": {"a": None}},
        {"type": None},
        {"enum": None},
        {"$ref": 5},
        {"$id": 5},
        {"properties": {"a": {"multipleOf": 0}}},
        {"patternProperties": {"[": {}}, "additionalProperties": False},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
    ],
    ids=str,
)
def test_an_invalid_schema_is_reported_as_a_fault_of_the_engine(schema: dict[str, Any]) -> None:
    assert schema_error(schema)
    path, why = params_error(schema, {"a": 1}) or ("", "")
    assert path == "spec.engine.params" and why.startswith("the schema of the Engine is invalid: ")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"$ref": "#/parts/a"}}, "parts": {"a": {"$ref": "#/missing"}}},
    ],
    ids=str,
)
def test_an_invalid_reference_met_by_parameters_is_a_fault_of_the_engine(schema: dict[str, Any]) -> None:
    path, why = params_error(schema, {"a": 1}) or ("", "")
    assert path == "spec.engine.params" and why.startswith("the schema of the Engine is invalid: ")


def test_a_schema_does_not_load_external_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator must not open a URL or a file to which a schema refers (PrefectHQ/prefect#22252)."""
    monkeypatch.setattr("urllib.request.urlopen", lambda *_: pytest.fail("it was opened"))
    other = tmp_path / "schema.json"
    other.write_text('{"type": "integer"}')
    for reference in (other.as_uri(), "http://127.0.0.1:1/schema.json", "other.json"):
        schema = {"properties": {"a": {"$ref": reference}}}
        assert "does not exist in this schema" in (schema_error(schema) or "")
        assert params_error(schema, {"a": 1})


def test_a_schema_may_refer_to_itself_by_its_id() -> None:
    schema = {
        "$id": "https://example.com/params",
        "$defs": {"count": {"type": "integer"}},
        "properties": {"a": {"$ref": "https://example.com/params#/$defs/count"}},
    }
    assert schema_error(schema) is None and params_error(schema, {"a": 1}) is None
    assert (params_error(schema, {"a": "x"}) or ("",))[0] == "spec.engine.params.a"


def test_a_value_shaped_like_a_reference_is_a_plain_value() -> None:
    assert schema_error({"properties": {"a": {"enum": [{"$ref": "#/missing"}]}, "$ref": {}}}) is None


_STEPS: dict[str, Any] = {"type": "object", "properties": {"steps": {"type": "integer"}}}
_RATE: dict[str, Any] = {"properties": {"rate": {"type": "number"}}}
_BOTH = {"type": "object", "properties": {**_STEPS["properties"], **_RATE["properties"]}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"Params": _BOTH}, "$ref": "#/$defs/Params"},
        {"allOf": [_STEPS, _RATE]},
        {"$defs": {"steps": _STEPS}, "allOf": [{"$ref": "#/$defs/steps"}], **_RATE},
        {**_STEPS, "if": {"required": ["steps"]}, "then": _RATE},
        {**_STEPS, "dependentSchemas": {"steps": _RATE}},
    ],
    ids=["$ref", "allOf", "inherited", "if", "dependentSchemas"],
)
def test_any_part_of_the_schema_may_declare_a_parameter(schema: dict[str, Any]) -> None:
    """See tdegrunt/jsonschema#406. pydantic writes the first schema for a model that refers to itself."""
    assert params_error(schema, {"steps": 1, "rate": 0.5}) is None
    error = params_error(schema, {"steps": 1, "rte": 0.5})
    assert error == ("spec.engine.params", "unknown parameter 'rte'; did you mean 'rate'?")
    path, words = params_error(schema, {"steps": 1, "rate": "high"}) or ("", "")
    assert path == "spec.engine.params.rate" and "is not of type 'number'" in words


def test_a_parameter_of_another_choice_is_unexpected() -> None:
    choices = [
        {"properties": {"kind": {"const": kind}, only: {"type": "integer"}}, "required": ["kind"]}
        for kind, only in (("adam", "beta"), ("sgd", "momentum"))
    ]
    schema = {"oneOf": choices}
    assert params_error(schema, {"kind": "adam", "beta": 1}) is None
    assert (
        "'momentum' was unexpected" in (params_error(schema, {"kind": "adam", "momentum": 1}) or ("", ""))[1]
    )
    assert "unknown parameter 'bta'" in (params_error(schema, {"kind": "adam", "bta": 1}) or ("", ""))[1]


def test_a_part_may_allow_unknown_parameters() -> None:
    assert params_error({"allOf": [{**_STEPS, "additionalProperties": True}]}, {"more": 2}) is None


@pytest.mark.parametrize(
    ("factor", "multiple", "other"),
    [(0.1, 0.3, 0.35), (0.01, 4.02, 4.025), (0.001, 0.95, 0.0005), (1e-4, 360.57, 1e-5), (5, 1e3, 7)],
)
def test_multiples_are_checked_in_decimal_arithmetic(factor: float, multiple: float, other: float) -> None:
    """In binary arithmetic 0.3 / 0.1 is not an integer (python-jsonschema/jsonschema#1234, #810, #687,
    #818).
    """
    schema = {"properties": {"a": {"type": "number", "multipleOf": factor}}}
    assert params_error(schema, {"a": multiple}) is None
    error = params_error(schema, {"a": other})
    assert error == ("spec.engine.params.a", f"{other!r} is not a multiple of {factor}")


def test_multiples_of_any_size_are_checked() -> None:
    schema = {"properties": {"a": {"multipleOf": 1e-300}}}
    assert params_error(schema, {"a": 10**300}) is None and params_error(schema, {"a": math.inf})
    assert params_error(schema, {"a": 1e300}) is None and params_error(schema, {"a": "text"}) is None
