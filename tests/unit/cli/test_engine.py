"""What `convoy engine` tells of parameters."""

from __future__ import annotations

from typing import Any

import pytest

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
    ],
)
def test_a_type_is_told_with_its_bounds(entry: dict[str, Any], words: str) -> None:
    assert kind_of(entry) == words


def test_every_parameter_of_the_catalogue_has_a_default_and_a_meaning() -> None:
    for engine in catalogue().values():
        found = parameters(engine.spec.params_schema)
        assert all(default != "-" and meaning for _, _, default, meaning in found)


def test_a_parameter_without_default_may_be_required() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    assert [line[2] for line in parameters(schema)] == ["required", "-"]


def test_the_metrics_that_an_engine_declares_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    describe(catalogue()["gpt"])
    assert capsys.readouterr().out.split("METRIC")[1].split()[:5] == [
        "UNIT",
        "MEANING",
        "held_out_loss",
        "nats",
        "Mean",
    ]
