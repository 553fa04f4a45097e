"""Tests of `convoy lint`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.controllers.advice.cases import ZONE, engine, own
from typer.testing import CliRunner, Result

from convoy.cli.__main__ import app

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
META = {"apiVersion": "convoy.dev/v1alpha1", "kind": "TrainingJob"}


def lint(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["lint", *map(str, arguments)], input=stdin)


def job(name: str = "job", **container: Any) -> dict[str, Any]:
    body = META | own(**container)
    body["metadata"] = {**body["metadata"], "name": name}
    return body


def write(folder: Path, *bodies: dict[str, Any], name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump_all(bodies))
    return path


def rules(*arguments: str | Path) -> list[tuple[str, str]]:
    """Return the object and the rule of each finding."""
    found = json.loads(lint(*arguments, "-o", "json").stdout)
    return [(one["object"], one["rule"]) for one in found["findings"]]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_example_violates_a_rule(path: Path) -> None:
    result = lint(path, "--fail-on", "info")
    other = "has no object with apiVersion" in result.output
    assert other or (result.exit_code == 0 and "no findings" in result.stdout), result.output


def test_the_examples_together_violate_no_rule() -> None:
    assert lint(ROOT / "examples", "--fail-on", "info").exit_code == 0


def test_a_table_names_field_problem_and_remedy(tmp_path: Path) -> None:
    result = lint(write(tmp_path, job(image="train:latest")))
    assert result.exit_code == 1
    head, title, *_ = result.stdout.splitlines()
    assert head.endswith("job.yaml: TrainingJob job")
    assert title.split() == ["RULE", "SEVERITY", "FINDING"]
    assert "T01" in result.stdout
    assert "spec.roles[0].template.spec.containers[0].image" in result.stdout
    assert "Remedy: name it by digest" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 object: 1 warnings, 0 hints"


def test_the_exit_code_follows_the_severity(tmp_path: Path) -> None:
    hint = write(tmp_path, job(image="train:1.4"), name="hint.yaml")
    warning = write(tmp_path, job(image="train"), name="warning.yaml")
    assert [lint(hint, "--fail-on", one).exit_code for one in ("warning", "info", "never")] == [0, 1, 0]
    assert [lint(warning, "--fail-on", one).exit_code for one in ("warning", "info", "never")] == [1, 1, 0]


def test_rules_are_ignored_by_option_and_by_the_job_itself(tmp_path: Path) -> None:
    body = job(image="train", resources={})
    path = write(tmp_path, body)
    assert rules(path) == [("TrainingJob job", "T01"), ("TrainingJob job", "T02")]
    assert rules(path, "--ignore", "T01") == [("TrainingJob job", "T02")]
    body["spec"]["lint"] = {"ignore": ["T02"]}
    assert rules(write(tmp_path, body), "--ignore", "T01") == []
    result = lint(path, "--ignore", "T13")
    assert result.exit_code == 2
    assert "there is no rule 'T13'" in result.output


def test_stdin_with_several_documents_and_a_list(tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [job("a"), job("b", image="train")]}
    result = lint("-", stdin=yaml.safe_dump_all([listed, job("c", image="train")]))
    assert result.exit_code == 1
    assert "stdin: TrainingJob b" in result.stdout
    assert result.stdout.splitlines()[-1] == "3 objects: 2 warnings, 0 hints"


def test_five_near_identical_jobs_are_one_finding(tmp_path: Path) -> None:
    many = [job(f"rate-{n}", command=["python", "train.py", "--seed=1", f"--rate={n}"]) for n in range(5)]
    path = write(tmp_path, *many)
    assert rules(path) == [("TrainingJob rate-0", "T03")]
    assert rules(write(tmp_path, *many[1:])) == []
    for number, one in enumerate(many):
        one["metadata"]["creationTimestamp"] = f"2026-11-28T1{number}:00:00Z"
    assert rules(write(tmp_path, *many)) == [], "they were created hours apart"


def test_jobs_of_several_files_are_compared_within_their_namespace(tmp_path: Path) -> None:
    for number in range(5):
        body = job(f"rate-{number}", command=["python", "train.py", "--seed=1", f"--rate={number}"])
        body["metadata"]["namespace"] = "other" if number == 4 else "team"
        write(tmp_path, body, name=f"{number}.yaml")
    assert rules(tmp_path) == []
    body["metadata"]["namespace"] = "team"
    write(tmp_path, body, name="4.yaml")
    assert rules(tmp_path) == [("TrainingJob rate-0", "T03")]


def test_volumes_in_the_files_show_where_the_data_is(tmp_path: Path) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "set-v2", "labels": {ZONE: "a"}},
    }
    body = META | own(
        pod={
            "nodeSelector": {ZONE: "b"},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "set-v2"}}],
        }
    )
    path = write(tmp_path, body)
    assert rules(path) == []
    claims = write(tmp_path, claim, name="claim.yaml")
    assert rules(path, claims) == [("TrainingJob job", "T07")]


def test_the_status_of_a_job_from_the_cluster_is_judged(tmp_path: Path) -> None:
    status = {"facts": {"data": [{"path": "/data", "files": 20_000, "medianBytes": 8192}]}}
    assert rules(write(tmp_path, META | own(status))) == [("TrainingJob job", "T09")]


def test_the_arms_of_an_experiment_are_judged(tmp_path: Path) -> None:
    spec = own(image="train", command=["python", "train.py"])["spec"]
    arm = {"name": "a", "type": "TrainingJob", "role": "Candidate", "template": {"spec": spec}}
    body = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "Experiment",
        "metadata": {"name": "sweep"},
        "spec": {
            "store": "s3",
            "arms": [arm],
            "outcomes": [{"name": "loss", "source": {"metric": "loss"}, "better": "Lower"}],
            "sweep": {"parameters": [{"name": "count", "path": "spec.roles.0.replicas", "values": [1, 2]}]},
        },
    }
    path = write(tmp_path, body)
    assert rules(path) == [("Experiment sweep", "T01")], "the Experiment chooses the seeds"
    (found,) = json.loads(lint(path, "-o", "json").stdout)["findings"]
    assert found["path"] == "spec.arms[0].template.spec.roles[0].template.spec.containers[0].image"


def test_broken_files_and_objects_are_errors(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1")
    wrong = META | engine()
    wrong["spec"]["roles"][0]["replicas"] = "two"
    result = lint(broken, write(tmp_path, wrong), write(tmp_path, job("good"), name="good.yaml"))
    assert result.exit_code == 1
    assert "broken.yaml: line 2, column 1" in result.stderr or "broken.yaml: line 1" in result.stderr
    assert "job.yaml: TrainingJob job: spec.roles[0].replicas: must be a whole number" in result.stderr
    assert result.stdout.splitlines()[-1] == "1 object: no findings"


def test_a_missing_file_and_files_without_jobs_are_errors(tmp_path: Path) -> None:
    result = lint(tmp_path / "absent.yaml")
    assert result.exit_code == 1
    assert "absent.yaml: No such file" in result.stderr
    empty = lint(write(tmp_path, {"apiVersion": "v1", "kind": "ConfigMap"}))
    assert empty.exit_code != 0
    assert "has no object with apiVersion" in empty.output
