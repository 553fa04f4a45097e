"""Tests that `convoy validate` finds the errors that the API server or the operator would report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy_crds.kinds import KINDS

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


def launched(*command: str) -> dict[str, Any]:
    """Return a job of two pods whose command is `command`."""
    template = {"spec": {"containers": [{"name": "worker", "image": "mine", "command": list(command)}]}}
    return spec(engine=None, roles=[{"name": "worker", "replicas": 2, "template": template}])


def served(**pod: Any) -> dict[str, Any]:
    """Return a ServingJob whose program listens on port 8000. `pod`: further fields of its pods."""
    container = {"image": "mine", "command": ["serve"], "ports": [{"containerPort": 8000}]}
    container["readinessProbe"] = {"tcpSocket": {"port": 8000}}
    role = {"name": "server", "template": {"spec": {"containers": [container], **pod}}}
    return {**GOOD, "kind": "ServingJob", "spec": {"roles": [role]}}


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
        (served(), ["containers[0].ports: requests would go to port 8080", "probes port 8000"]),
        (served(volumes=[{"name": "convoy-model"}]), ["volumes[0].name: 'convoy-model' is reserved"]),
        (served(securityContext={"runAsUser": 0}), ["securityContext.runAsUser: user 0 is root"]),
        (spec(engine={"name": "gpt", "params": {"steps": 0}}), ["spec.engine.params.steps"]),
        (
            spec(engine={"name": "gpt", "params": {"width": 16, "heads": 3}}),
            ["spec.engine.params: width: 16 must be a multiple of heads=3"],
        ),
        (spec(roles=[{"name": "worker"}]), ["spec.roles[0].replicas", "required"]),
        (spec(roles=[{"name": "worker", "replicas": 2, "minReplicas": 3}]), ["spec.roles[0].minReplicas"]),
        (spec(roles=[]), ["spec.roles"]),
        (spec(success="nobody"), ["spec.success"]),
        (spec(engine=None), ["template.spec.containers[0].command"]),
        (spec(suspended=True), ["spec.suspended"]),
        ({**GOOD, "metadata": {"name": "a" * 60}}, ["63 characters"]),
        ({**GOOD, "kind": "TrainJob"}, ["TrainJob"]),
        (
            launched("torchrun", "--nproc-per-node=2", "t"),
            ["spec.roles[0]", "processesPerReplica is 1: set it to 2"],
        ),
        (launched("torchrun", "--nnodes=x", "t"), ["spec.roles[0]", "torchrun: error: argument --nnodes"]),
        (launched("bash", "-c", "torchrun --standalone t"), ["containers[0].command", "trains alone"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_error_has_its_field_path(tmp_path: Path, body: dict[str, Any], words: list[str]) -> None:
    code, output = validate(tmp_path, body)
    assert code == 1
    assert all(word in output for word in words), output


def test_a_time_needs_its_zone(tmp_path: Path) -> None:
    """The API server refuses such a time too."""
    price = {"onDemandPerHour": 1, "spot": {"perHour": 0.3}, "asOf": "2026-11-26T12:00:00"}
    selector = {"matchLabels": {"capacity": "spot"}}
    pool = {"selector": selector, "maxNodes": 1, "allowedNamespaces": ["*"], "price": price}
    code, output = validate(tmp_path, {**GOOD, "kind": "SpotPool", "spec": pool})
    assert (code, "spec.price.asOf: Input should have timezone info" in output) == (1, True), output
    price["asOf"] += "Z"
    assert validate(tmp_path, {**GOOD, "kind": "SpotPool", "spec": pool})[0] == 0


def compared(role: str, template: dict[str, Any]) -> dict[str, Any]:
    """Return an Experiment whose arms are TrainingJobs. `role`: target of its perturbation."""
    arms = [
        {"name": name, "type": "TrainingJob", "role": kind, "template": {"spec": template}}
        for name, kind in (("new", "Candidate"), ("old", "Comparator"))
    ]
    plan = {
        "arms": arms,
        "store": "results",
        "blocks": 9,
        "unperturbed": False,
        "outcomes": [{"name": "goodput", "source": {"status": "goodput.ratio"}, "better": "Higher"}],
        "perturbations": [{"name": "k", "kind": "KillRank", "magnitudes": [2], "target": {"role": role}}],
        "predictions": [
            {
                "name": "p",
                "outcome": "goodput",
                "candidate": "new",
                "comparator": "old",
                "direction": "Better",
                "perturbation": "k",
            }
        ],
    }
    return {**GOOD, "kind": "Experiment", "spec": plan}


@pytest.mark.parametrize(
    ("role", "template", "message"),
    [
        ("worker", GOOD["spec"], ""),
        ("wroker", GOOD["spec"], "spec.perturbations[0].target.role: arm 'new' has no role 'wroker'"),
        (
            "worker",
            {**GOOD["spec"], "engine": {"name": "gpt", "params": {"stepps": 9}}},
            "spec.arms[1].template.spec.engine.params: unknown parameter 'stepps'",
        ),
        ("worker", {**GOOD["spec"], "recovry": {}}, "spec.arms[0].template.spec.recovry: "),
    ],
    ids=["good", "role", "parameter", "field"],
)
def test_the_jobs_of_an_experiment_are_checked(
    tmp_path: Path, role: str, template: dict[str, Any], message: str
) -> None:
    code, output = validate(tmp_path, compared(role, template))
    assert (code, message in output) == (1 if message else 0, True), output


def test_an_engine_in_the_same_file_counts(tmp_path: Path) -> None:
    engine = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "Engine",
        "metadata": {"name": "mine"},
        "spec": {"image": "mine:1", "command": ["python", "mine.py"], "paramsSchema": {"type": "object"}},
    }
    assert validate(tmp_path, engine, spec(engine={"name": "mine"}))[0] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            spec(roles=[{"name": "worker", "replica": 2}]),
            "spec.roles[0].replica: there is no such field; did you mean 'replicas'?",
        ),
        (
            spec(checkpoint={"interval": "5 minutes"}),
            "spec.checkpoint.interval: must be Auto, or a whole number followed by s, m or h, such as "
            "90s, 10m or 2h, is '5 minutes'",
        ),
        (
            spec(checkpoint={"tiers": {"local": {}, "remote": {"store": "s", "every": "Auto"}}}),
            "spec.checkpoint.tiers.remote.every: must be a whole number followed by s, m or h, such as "
            "90s, 10m or 2h, is 'Auto'",
        ),
        (spec(roles=[{"name": "worker", "replicas": 0}]), "spec.roles[0].replicas: must be at least 1, is 0"),
        (
            spec(roles=[{"name": "worker", "replicas": "2"}]),
            "spec.roles[0].replicas: must be a whole number, is '2'",
        ),
        (spec(suspend="yes"), "spec.suspend: must be true or false, is 'yes'"),
        (spec(recovery={"fencing": "strict"}), "spec.recovery.fencing: must be 'Auto', 'Commit' or 'Strict'"),
        (spec(engine="gpt"), "spec.engine: must be a mapping, is 'gpt'"),
        (
            spec(engine={"name": "gpt", "params": {"stesp": 3}}),
            "spec.engine.params: unknown parameter 'stesp'; did you mean 'steps'?",
        ),
        (
            spec(roles=[{"name": "w", "replicas": 1}, {"name": "w", "replicas": 1}]),
            "spec.roles[*].name: 'w' occurs more than once",
        ),
        ({**GOOD, "metadata": {"name": "My_Job"}}, "metadata.name: must contain only a-z, 0-9, '-' and '.'"),
        ({**GOOD, "metadata": {"name": "a", "labels": {"a": 1}}}, "metadata.labels.a: must be text, is 1"),
        ({**GOOD, "metadata": {}}, "TrainingJob number 1: metadata.name: is required"),
        (
            {**GOOD, "apiVersion": "convoy.dev/v1"},
            "apiVersion: must be 'convoy.dev/v1alpha1', is 'convoy.dev/v1'",
        ),
        ({**GOOD, "kind": "TrainJob"}, "there is no kind 'TrainJob'; did you mean 'TrainingJob'?"),
        (
            spec(engine={"name": "gtp"}),
            "spec.engine.name: neither the catalogue nor these files have an Engine 'gtp'; "
            "did you mean 'gpt'?",
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_an_error_has_a_readable_message(tmp_path: Path, body: dict[str, Any], message: str) -> None:
    code, output = validate(tmp_path, body)
    assert code == 1
    assert message in output


def test_every_kind_is_known(tmp_path: Path) -> None:
    for kind in KINDS:
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "a"}}
        assert "there is no kind" not in validate(tmp_path, body)[1]
    learned = {"apiVersion": "convoy.dev/v1alpha1", "kind": "HardwareClass", "metadata": {"name": "a"}}
    assert validate(tmp_path, learned) == (0, f"{tmp_path / 'job.yaml'}: 1 object valid\n")
    code, output = validate(tmp_path, {**learned, "spec": {"nodes": 3}})
    assert code == 1 and "HardwareClass a: spec.nodes: there is no such field" in output


def test_a_field_without_a_value_has_its_default(tmp_path: Path) -> None:
    body = {**GOOD, "spec": {**GOOD["spec"], "recovery": None}}
    assert validate(tmp_path, body)[0] == 0


def test_a_yaml_error_has_its_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("spec:\n  roles:\n    - name: worker\n     replicas: 2\n")
    result = CliRunner().invoke(app, ["validate", str(file)])
    assert result.exit_code == 1
    assert f"{file}: line 4, column 6: " in result.output and "indented" in result.output


def test_a_folder_is_checked_file_by_file_and_its_engines_count(tmp_path: Path) -> None:
    mine = {"kind": "Engine", "metadata": {"name": "mine"}, "spec": {"image": "mine:1", "command": ["mine"]}}
    bodies = {
        "a.yaml": spec(engine={"name": "mine"}),
        "b.yml": {"apiVersion": "convoy.dev/v1alpha1", **mine},
        "c.yaml": spec(roles=[]),
        "d.yaml": {"apiVersion": "v1", "kind": "ConfigMap"},
    }
    for name, body in bodies.items():
        (tmp_path / name).write_text(yaml.safe_dump(body))
    result = CliRunner().invoke(app, ["validate", str(tmp_path)])
    assert result.exit_code == 1
    lines = sorted(result.output.splitlines())
    assert [line.removeprefix(f"{tmp_path}/")[:6] for line in lines] == ["a.yaml", "b.yml:", "c.yaml"]
    assert "1 object valid" in lines[0] and "needs at least 1" in lines[2]


def test_stdin_is_a_file_too() -> None:
    result = CliRunner().invoke(app, ["validate", "-"], input=yaml.safe_dump(GOOD))
    assert (result.exit_code, result.output) == (0, "stdin: 1 object valid\n")


def test_a_file_without_convoy_objects_is_an_error() -> None:
    result = CliRunner().invoke(app, ["validate", "-"], input="apiVersion: v1\nkind: ConfigMap\n")
    assert result.exit_code == 1 and "has no object with apiVersion convoy.dev/v1alpha1" in result.output


def test_several_files_are_checked(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["validate", *map(str, EXAMPLES)])
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) == len(EXAMPLES)
    empty = tmp_path / "empty.yaml"
    empty.write_text("kind: Pod\n")
    result = CliRunner().invoke(app, ["validate", str(empty), str(empty)])
    assert result.exit_code == 1 and "have no object with apiVersion" in result.output


def store(allowed: Any = ("*",), **s3: Any) -> dict[str, Any]:
    body = {"bucket": "checkpoints", "credentialsSecret": "keys", **s3}
    spec = {"s3": {key: value for key, value in body.items() if value is not None}}
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "CheckpointStore",
        "metadata": {"name": "s3"},
        "spec": {**spec, "allowedNamespaces": list(allowed)},
    }


def on_volume(**volume: Any) -> dict[str, Any]:
    body = {"claimName": "checkpoints", **volume}
    spec = {"volume": {key: value for key, value in body.items() if value is not None}}
    return {**store(), "spec": {**spec, "allowedNamespaces": ["*"]}}


NOWHERE = {**store(), "spec": {"allowedNamespaces": ["*"]}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (store(), "1 object valid"),
        (store(bucket="My_Bucket"), "spec.s3.bucket: bucket must be of lower-case letters"),
        (store(bucket=None), "spec.s3.bucket: is required"),
        (store(endpoint="minio:9000"), "spec.s3.endpoint: endpoint must be a URL that begins with http://"),
        (store(prefix="/a/"), "spec.s3.prefix: prefix must be folders such as team/checkpoints"),
        (store(allowed=[]), "spec.allowedNamespaces: needs at least 1"),
        (
            store(allowed=["a", "B"]),
            "spec.allowedNamespaces: each entry of allowedNamespaces must be the name of a namespace",
        ),
        (store(secret="x"), "spec.s3.secret: there is no such field"),
        (on_volume(), "1 object valid"),
        (on_volume(path="../x"), "spec.volume.path: path must be folders such as team/checkpoints"),
        (on_volume(claimName=None), "spec.volume.claimName: is required"),
        (NOWHERE, "spec: a CheckpointStore needs exactly one of s3 (a bucket) and volume"),
        (
            spec(checkpoint={"tiers": {"remote": {"store": "s3"}}}),
            "spec.checkpoint.tiers.remote: uploads to a store read from local memory: add local: {}",
        ),
        (
            spec(checkpoint={"tiers": {"local": {}, "remote": {"every": "5m"}}}),
            "spec.checkpoint.tiers.remote.store: is required",
        ),
        (
            spec(checkpoint={"tiers": {"local": {}, "remote": {"claimName": "c", "store": "s3"}}}),
            "spec.checkpoint.tiers.remote.claimName: there is no such field",
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_stores_and_their_use_are_checked(tmp_path: Path, body: dict[str, Any], message: str) -> None:
    code, output = validate(tmp_path, body)
    assert code == ("valid" not in message) and message in output


def of_health(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "convoy.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (of_health("GuardPolicy", mode="Act"), "1 object valid"),
        (of_health("GuardPolicy", mode="Watch"), "spec.mode"),
        (of_health("GuardPolicy", budget={}), "spec.budget: there is no such field; did you mean"),
        (of_health("NodeHealth", condemned={"reason": "x", "user": "z"}), "1 object valid"),
        (of_health("NodeHealth", condemned={"reason": "x"}), "spec.condemned.user: is required"),
        (of_health("HealthSweep", nodes=["a"]), "1 object valid"),
        (of_health("HealthSweep"), "spec: a HealthSweep needs exactly one of nodes (by name) and selector"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else value["kind"],
)
def test_kinds_of_health_are_checked(tmp_path: Path, body: dict[str, Any], message: str) -> None:
    code, output = validate(tmp_path, body)
    assert code == ("valid" not in message) and message in output, output
