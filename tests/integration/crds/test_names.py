"""Tests with names of maximum length against a real API server: pods can be created for every accepted
name.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.crds.test_schema import STORES, STRICT, body, path, refusal, store

from convoy_controllers.testing.builders import make_engine
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.workers.pod import with_incarnation
from convoy_crds.layout import slots
from convoy_crds.meta import MAX_REPLICAS
from convoy_crds.trainingjob import TrainingJob

LONG = ".".join(["o" * 63] * 3 + ["o" * 61])
"""A name with the maximum length of 253 characters."""
LONGEST_ROLE = "r" * 24
NAMES = ["0", "llama-3.1", "7b.v2-x", "a--b", "n" * 33, ".".join("abcdefghijklmnopq"), f"{'n' * 30}.9x"]
ENGINES = "/apis/convoy.dev/v1alpha1/engines"


@pytest.fixture(scope="module")
def namespace(control_plane: Any) -> str:
    """Return a namespace whose name has the maximum length."""
    name = control_plane.namespace("n" * 54)
    assert len(name) == 63
    return str(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_accepted_job_name_gives_accepted_pod_names(
    control_plane: Any, namespace: str, name: str
) -> None:
    manifest = body(roles=[{"name": LONGEST_ROLE, "replicas": MAX_REPLICAS}])
    manifest["metadata"]["name"] = name
    job = TrainingJob.model_validate(control_plane.request("POST", path(namespace) + STRICT, manifest))
    made = with_incarnation(pod(job, make_engine(), slots(job)[-1]), 1, [LONG])
    stored = control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", made)
    assert stored["metadata"]["name"] == f"{name}-{LONGEST_ROLE}-{MAX_REPLICAS - 1}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("n" * 34, "pod names are <job>-<role>-<index> and must fit 63 characters"),
        ("Upper", "lowercase RFC 1123 subdomain"),
        ("under_score", "lowercase RFC 1123 subdomain"),
        ("-dash", "lowercase RFC 1123 subdomain"),
        ("two..dots", "lowercase RFC 1123 subdomain"),
    ],
)
def test_a_name_that_gives_invalid_pod_names_is_rejected(
    control_plane: Any, namespace: str, name: str, words: str
) -> None:
    manifest = body(roles=[{"name": LONGEST_ROLE, "replicas": 1}])
    manifest["metadata"]["name"] = name
    assert words in refusal(lambda: control_plane.request("POST", path(namespace), manifest))


@pytest.mark.parametrize("name", ["e.example.com", "0", LONG])
def test_every_name_of_a_referenced_object_is_accepted(control_plane: Any, namespace: str, name: str) -> None:
    """A job may refer to an Engine, a CheckpointStore and a job (resumeFrom) by any name that their kinds
    allow.
    """
    engine = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "Engine",
        "metadata": {"name": name},
        "spec": {"image": "x", "command": ["x"], "paramsSchema": {}},
    }
    control_plane.request("POST", ENGINES + "?dryRun=All", engine)
    kept = store()
    kept["metadata"]["name"] = name
    control_plane.request("POST", STORES + "?dryRun=All", kept)
    tiers = {"local": {}, "remote": {"store": name}}
    given = body(engine={"name": name}, checkpoint={"tiers": tiers, "resumeFrom": {"job": name}})
    control_plane.request("POST", path(namespace) + STRICT, given)
