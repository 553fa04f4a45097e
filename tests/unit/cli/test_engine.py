"""Tests of what `convoy engine` shows: parameters and metrics, with and without a cluster."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.engine import describe
from convoy_crds.parameters import kind_of, parameters
from convoy_workloads.engines.catalogue import catalogue


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 64}, "integer from 1 to 64"),
        ({"type": "number", "exclusiveMinimum": 0}, "number above 0"),
        ({"enum": ["adam", "sgd"]}, "adam or sgd"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"type": ["string", "null"]}, "string or null"),
        ({}, "anything"),
        (True, "anything"),
        ({"const": "cosine", "type": "string"}, "cosine"),
        ({"enum": [4, True, None]}, "4 or true or null"),
        ({"oneOf": [{"type": "object"}, {"type": "object", "properties": {}}]}, "object"),
    ],
)
def test_a_type_is_shown_with_its_bounds(entry: Any, words: str) -> None:
    assert kind_of(entry, {}) == words


def test_every_parameter_of_the_catalogue_has_a_default_and_a_meaning() -> None:
    for engine in catalogue().values():
        found = parameters(engine.spec.params_schema)
        assert all(default != "-" and meaning for _, _, default, meaning in found)


def test_a_parameter_without_default_may_be_required() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    assert [line[2] for line in parameters(schema)] == ["required", "-"]


class Optimizer(Enum):
    ADAM = "adam"
    SGD = "sgd"


class Schedule(BaseModel):
    warmup: int = 10


class Params(BaseModel):
    """Parameters as the author of an engine writes them. pydantic writes a `$ref` for each class. The field
    `inner` makes the whole schema a `$ref`.
    """

    steps: int
    optimizer: Optimizer = Field(Optimizer.ADAM, description="Rule.")
    schedule: Schedule | None = None
    compile: bool = True
    inner: Params | None = None


def test_parameters_of_a_pydantic_model_are_shown_as_written() -> None:
    schema = Params.model_json_schema()
    assert "$ref" in schema and "properties" not in schema
    assert parameters(schema) == [
        ("steps", "integer", "required", ""),
        ("optimizer", "adam or sgd", "adam", "Rule."),
        ("schedule", "object or null", "null", ""),
        ("schedule.warmup", "integer", "10", ""),
        ("compile", "boolean", "true", ""),
        ("inner", "object or null", "null", ""),
    ]


def test_parameters_of_all_parts_of_a_schema_are_shown() -> None:
    choice = [{"properties": {"rule": {"const": one}}, "required": [one]} for one in ("adam", "sgd")]
    base = {"properties": {"rate": {"type": "number"}}, "required": ["rate"]}
    schema = {"$defs": {"base": base}, "allOf": [{"$ref": "#/$defs/base"}], "oneOf": choice}
    assert parameters(schema) == [("rate", "number", "required", ""), ("rule", "adam or sgd", "-", "")]
    assert parameters({"allOf": [{"$ref": "#"}]}) == [], "a schema that refers to itself"


def test_fields_of_objects_are_shown_with_their_path() -> None:
    leaf = {"properties": {"size": {"type": "integer"}, "tree": {"$ref": "#"}}, "required": ["size"]}
    schema = {"properties": {"tree": {"type": "object", "properties": {"leaf": {"anyOf": [leaf]}}}}}
    assert [line[:3] for line in parameters(schema)] == [
        ("tree", "object", "-"),
        ("tree.leaf", "anything", "-"),
        ("tree.leaf.size", "integer", "required"),
        ("tree.leaf.tree", "anything", "-"),
    ]


def test_the_metrics_that_an_engine_declares_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    describe(catalogue()["gpt"])
    assert capsys.readouterr().out.split("METRIC")[1].split()[:5] == [
        "UNIT",
        "MEANING",
        "held_out_loss",
        "nats",
        "Mean",
    ]


@pytest.fixture
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.mark.usefixtures("no_cluster")
def test_without_a_cluster_the_installed_engines_are_shown() -> None:
    shown = CliRunner().invoke(app, ["engine", "gpt"])
    assert shown.exit_code == 0, shown.output
    assert "does not exist" in shown.stderr and "of the installed convoy-operator" in shown.stderr
    assert shown.stdout.startswith("gpt: ") and "steps" in shown.stdout


@pytest.mark.usefixtures("no_cluster")
def test_a_named_context_must_exist() -> None:
    shown = CliRunner().invoke(app, ["engine", "gpt", "--context", "prod"])
    assert shown.exit_code == 1 and "does not exist" in shown.output and "PARAMETER" not in shown.output
