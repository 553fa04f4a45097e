"""`convoy validate` finds what the API server or the operator would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from convoy.cli.__main__ import app

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
GOOD: dict[str, Any] = {
    "apiVersion": "convoy.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "job"},
    "spec": {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 2}]},
}


def spec(**changes: Any) -> dict[str, Any]:
    body = {**GOOD["spec"], **changes}
    return {**GOOD, "spec": {key: value for key, value in body.items() if value is not None}}


def validate(tmp_path: Path, *bodies: dict[str, Any]) -> tuple[int, str]:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    result = CliRunner().invoke(app, ["validate", str(file)])
    return result.exit_code, result.output


def test_a_good_manifest_passes(tmp_path: Path) -> None:
    assert validate(tmp_path, GOOD) == (0, f"{tmp_path / 'job.yaml'}: 1 object valid\n")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_passes(example: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(example)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (spec(engine={"name": "nope"}), ["spec.engine.name", "nope", "gpt"]),
        (spec(engine={"name": "gpt", "params": {"steps": 0}}), ["spec.engine.params.steps"]),
        (spec(roles=[{"name": "worker"}]), ["spec.roles[0].replicas", "required"]),
        (spec(roles=[{"name": "worker", "replicas": 2, "minReplicas": 3}]), ["spec.roles[0].minReplicas"]),
        (spec(roles=[]), ["spec.roles"]),
        (spec(success="nobody"), ["spec.success"]),
        (spec(engine=None), ["template.spec.containers[0].command"]),
        (spec(suspended=True), ["spec.suspended"]),
        ({**GOOD, "metadata": {"name": "a" * 60}}, ["63 characters"]),
        ({**GOOD, "kind": "TrainJob"}, ["unknown kind"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_is_wrong_is_named_with_its_path(tmp_path: Path, body: dict[str, Any], words: list[str]) -> None:
    code, output = validate(tmp_path, body)
    assert code == 1
    assert all(word in output for word in words), output


def test_an_engine_in_the_same_file_counts(tmp_path: Path) -> None:
    engine = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "Engine",
        "metadata": {"name": "mine"},
        "spec": {"image": "mine:1", "command": ["python", "mine.py"], "paramsSchema": {"type": "object"}},
    }
    assert validate(tmp_path, engine, spec(engine={"name": "mine"}))[0] == 0
