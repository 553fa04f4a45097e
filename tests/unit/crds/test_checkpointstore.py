"""Tests of the API server's validation rules for CheckpointStores and for a job's remote tier."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from convoy.cli.rules import broken_rules
from convoy_crds import checkpointstore, trainingjob
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.generate import definition
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import Tiers


def store(allowed: Any = ("*",), **s3: Any) -> CheckpointStore:
    body = {"bucket": "checkpoints", "credentialsSecret": "keys", **s3}
    spec = {"s3": body, "allowedNamespaces": list(allowed)}
    return CheckpointStore.model_validate({"metadata": {"name": "s3"}, "spec": spec})


@pytest.mark.parametrize(
    ("field", "value", "good"),
    [
        ("bucket", "a.b-c9", True),
        ("bucket", "9ab", True),
        ("bucket", "-ab", False),
        ("bucket", "ab.", False),
        ("bucket", "a..b", False),
        ("bucket", "Abc", False),
        ("bucket", "a/b", False),
        ("endpoint", "", True),
        ("endpoint", "https://s3.example.com", True),
        ("endpoint", "http://[fd00::1]:9000/s3", True),
        ("endpoint", "s3.example.com", False),
        ("endpoint", "ftp://s3.example.com", False),
        ("endpoint", "https://user:word@s3.example.com", False),
        ("endpoint", "https://s3.example.com?x=1", False),
        ("endpoint", "https://", False),
        ("prefix", "", True),
        ("prefix", "team/checkpoints-2.0", True),
        ("prefix", "/team", False),
        ("prefix", "team/", False),
        ("prefix", "team//x", False),
        ("prefix", "team/../other", False),
        ("prefix", "a b", False),
    ],
)
def test_the_location_of_a_bucket_is_validated(field: str, value: str, good: bool) -> None:
    broken = broken_rules(checkpointstore.KIND, store(**{field: value}).to_dict())
    assert bool(broken) is not good
    assert all(one.startswith(f"spec.s3.{field}: {field} must be") for one in broken), broken


def on_volume(**volume: Any) -> CheckpointStore:
    spec = {"volume": {"claimName": "checkpoints", **volume}, "allowedNamespaces": ["*"]}
    return CheckpointStore.model_validate({"metadata": {"name": "disk"}, "spec": spec})


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("", True),
        ("team", True),
        ("team/checkpoints-2.0", True),
        ("/team", False),
        ("team/", False),
        ("..", False),
        ("team/../other", False),
        ("team/.hidden", False),
        ("a b", False),
    ],
)
def test_the_path_on_a_volume_is_validated(path: str, good: bool) -> None:
    broken = broken_rules(checkpointstore.KIND, on_volume(path=path).to_dict())
    assert bool(broken) is not good
    assert all(one.startswith("spec.volume.path: path must be folders") for one in broken), broken


S3 = {"bucket": "checkpoints", "credentialsSecret": "keys"}
VOLUME = {"claimName": "checkpoints"}


@pytest.mark.parametrize(
    ("places", "good"),
    [({"s3": S3}, True), ({"volume": VOLUME}, True), ({"s3": S3, "volume": VOLUME}, False), ({}, False)],
    ids=lambda value: "+".join(value) or "nothing" if isinstance(value, dict) else "",
)
def test_a_store_has_exactly_one_location(places: dict[str, Any], good: bool) -> None:
    spec = {**places, "allowedNamespaces": ["*"]}
    made = CheckpointStore.model_validate({"metadata": {"name": "s"}, "spec": spec})
    broken = broken_rules(checkpointstore.KIND, made.to_dict())
    only = "spec: a CheckpointStore needs exactly one of s3 (a bucket) and volume (a PersistentVolumeClaim)"
    assert broken == ([] if good else [only])


@pytest.mark.parametrize(
    ("allowed", "namespace", "wanted"),
    [
        (["*"], "any", True),
        (["a", "b"], "b", True),
        (["a"], "b", False),
        (["a"], None, False),
        (["a", "*"], "b", True),
        (["*"], None, True),
    ],
)
def test_allowed_namespaces_limit_the_jobs_of_a_store(
    allowed: list[str], namespace: str | None, wanted: bool
) -> None:
    assert store(allowed).spec.allows(namespace) is wanted
    assert broken_rules(checkpointstore.KIND, store(allowed).to_dict()) == []


@pytest.mark.parametrize("allowed", [["*a"], ["A"], ["a.b"], ["a", "-b"]])
def test_allowed_namespaces_must_be_valid_names(allowed: list[str]) -> None:
    (broken,) = broken_rules(checkpointstore.KIND, store(allowed).to_dict())
    assert broken.startswith(
        "spec.allowedNamespaces: each entry of allowedNamespaces must be the name of a namespace"
    )


@pytest.mark.parametrize(
    "more", [{"credentialsSecret": "Keys"}, {"region": "eu west"}, {"bucket": "ab"}, {"allowed": []}]
)
def test_invalid_fields_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        store(**more)


@pytest.mark.parametrize("claim", ["", "Disk", "a..b", "../disk", "disk/", "-disk"])
def test_a_claim_must_have_a_name(claim: str) -> None:
    with pytest.raises(ValidationError):
        on_volume(claimName=claim)


@pytest.mark.parametrize(
    ("place", "fields"),
    [("s3", ("bucket", "endpoint", "prefix")), ("volume", ("claimName", "path"))],
)
def test_the_location_of_a_store_is_immutable(place: str, fields: tuple[str, ...]) -> None:
    schema = definition(checkpointstore.KIND)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = schema["properties"]["spec"]["properties"][place]["x-kubernetes-validations"]
    (fixed,) = (rule["rule"] for rule in rules if "oldSelf" in rule["rule"])
    assert all(f"self.{name} == oldSelf.{name}" in fixed for name in fields)
    assert checkpointstore.KIND.scope == "Cluster"


MEMORY = "uploads to a store read from local memory: add local: {}"
COPIES = "peer copies are made from local memory: add local: {}"


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ({}, []),
        ({"local": {}}, []),
        ({"local": {}, "peer": {}}, []),
        ({"local": {}, "remote": {"store": "s"}}, []),
        ({"local": {}, "peer": {}, "remote": {"store": "s", "every": "1h", "keepEverySteps": 9}}, []),
        ({"remote": {"store": "s"}}, [f"remote: {MEMORY}"]),
        ({"peer": {}}, [f"peer: {COPIES}"]),
        ({"peer": {}, "remote": {"store": "s"}}, [f"peer: {COPIES}", f"remote: {MEMORY}"]),
    ],
)
def test_the_combination_of_tiers_is_validated(tiers: dict[str, Any], words: list[str]) -> None:
    spec = {
        "engine": {"name": "gpt"},
        "roles": [{"name": "w", "replicas": 1}],
        "checkpoint": {"tiers": tiers},
    }
    job = TrainingJob.model_validate({"metadata": {"name": "j"}, "spec": spec})
    broken = broken_rules(trainingjob.KIND, job.to_dict())
    assert broken == [f"spec.checkpoint.tiers.{message}" for message in words]


@pytest.mark.parametrize(
    ("tiers", "names", "store"),
    [
        ({}, (), None),
        ({"local": {}, "peer": {}}, ("local", "peer"), None),
        ({"local": {}, "remote": {"store": "s"}}, ("local", "remote"), "s"),
    ],
)
def test_tiers_have_names_and_a_store(tiers: Any, names: tuple[str, ...], store: str | None) -> None:
    read = Tiers.model_validate(tiers)
    assert (read.names, read.store, read.any) == (names, store, bool(names))


@pytest.mark.parametrize(
    "remote", [{}, {"store": None}, {"store": "No Name"}, {"store": "s", "claimName": "c"}]
)
def test_the_remote_tier_must_name_a_store(remote: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="remote"):
        Tiers.model_validate({"local": {}, "remote": remote})


@pytest.mark.parametrize(
    "remote", [{"keepLast": 0}, {"keepLast": 101}, {"keepEverySteps": -1}, {"every": "0m"}, {"every": "10"}]
)
def test_retention_of_the_remote_tier_has_bounds(remote: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Tiers.model_validate({"local": {}, "remote": {"store": "s", **remote}})
