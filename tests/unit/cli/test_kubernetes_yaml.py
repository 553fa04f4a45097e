"""Tests that YAML is read as kubectl reads it. The expected values come from `kubectl annotate --local -o
json`, version 1.33.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.kubernetes_yaml import load_all


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e4", 10000),
        ("1.5E3", 1500),
        ("1.0", 1),
        (".5", 0.5),
        ("1.", 1),
        ("1:30", "1:30"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("1_000", 1000),
        ("1_0.5", 10.5),
        ("010", 8),
        ("0o17", 15),
        ("08", 8),
        ("09.5", 9.5),
        ("0x1f", 31),
        ("0b11", 3),
        ("-3", -3),
        ("+4", 4),
        ("yes", True),
        ("off", False),
        ("y", True),
        ("n", False),
        ("1e", "1e"),
        ("e5", "e5"),
        ("1e21", 1e21),
        ("1e20", 10**20),
        ("-0.0", 0),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("~", None),
        ("'1e-4'", "1e-4"),
    ],
)
def test_a_plain_value_has_the_type_that_kubectl_reads(text: str, value: Any) -> None:
    (found,) = load_all(text)
    assert (type(found), found) == (type(value), value)


def test_other_loaders_are_unchanged() -> None:
    assert yaml.safe_load("1e-4") == "1e-4"


def test_a_learning_rate_may_have_no_point(tmp_path: Path) -> None:
    """PyYAML reads 2e-5 as text, which caused hiyouga/LlamaFactory#4014."""
    file = tmp_path / "job.yaml"
    file.write_text(
        """
apiVersion: convoy.dev/v1alpha1
kind: Engine
metadata: {name: mine}
spec:
  image: mine:1
  command: [mine]
  paramsSchema: {properties: {rate: {type: number, exclusiveMinimum: 0}, at: {type: string}}}
---
apiVersion: convoy.dev/v1alpha1
kind: TrainingJob
metadata: {name: a}
spec:
  engine: {name: mine, params: {rate: 2e-5, at: 1:30}}
  roles: [{name: worker, replicas: 1e0}]
"""
    )
    result = CliRunner().invoke(app, ["validate", str(file)])
    assert (result.exit_code, result.output) == (0, f"{file}: 2 objects valid\n")
