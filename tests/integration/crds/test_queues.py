"""Tests of updates by a batch queue against the API server's rules, in every phase of a job.

The operations are those of Kueue's job framework (`pkg/controller/jobframework/reconciler.go`,
`pkg/podset`). `startJob` adds a flavor and sets `suspend: false` in one patch. `stopJob` restores the
template and sets `suspend: true` in one patch. Both send the whole list `roles`, with the resourceVersion
that they have read.
"""

from __future__ import annotations

import json
import urllib.error
from typing import Any

import pytest
from tests.integration.crds.test_schema import MERGE, body, path, refusal

HELD = "status.phase is Pending, Suspending or Suspended, or in the update that sets suspend: true"
FENCED = "recovery.fencing, and the presence of spec.engine, may change only"
FREE = {None, "Pending", "Suspending", "Suspended"}
"""Phases in which no rank runs, or in which the ranks are being stopped."""
PHASES = [
    None,
    "Pending",
    "Starting",
    "Running",
    "Restarting",
    "Suspending",
    "Suspended",
    "Succeeded",
    "Failed",
]


def roles(template: dict[str, Any] | None = None, **role: Any) -> list[dict[str, Any]]:
    return [{"name": "worker", "replicas": 2, **({"template": template} if template else {}), **role}]


GATES = [{"name": "kueue.x-k8s.io/topology"}]
FLAVOR = {
    "metadata": {
        "labels": {"kueue.x-k8s.io/podset": "worker"},
        "annotations": {"kueue.x-k8s.io/workload": "trainingjob-j"},
    },
    "spec": {
        "nodeSelector": {"cloud.example.com/pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        "schedulingGates": GATES,
    },
}
OTHER = {"spec": {"nodeSelector": {"cloud.example.com/pool": "reserved"}}}
TYPED = {
    # A client with Go types for a pod template sends these empty fields although it has not set them.
    "metadata": {"creationTimestamp": None},
    "spec": {"containers": [{"name": "worker", "resources": {}}], "nodeSelector": None},
}
ADMITTED, ORIGINAL = roles(FLAVOR), roles()
TWO = [{"name": "actor", "replicas": 1}, {"name": "learner", "replicas": 1}]
ANYWHERE = set(PHASES)
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], set[Any], str]] = {
    # Each entry has: name, (spec before, update, phases in which the update is accepted, rejection message in
    # other phases).
    "suspend": ({}, {"suspend": True}, ANYWHERE, ""),
    "suspend twice": ({"suspend": True}, {"suspend": True}, ANYWHERE, ""),
    "resume": ({"suspend": True}, {"suspend": False}, ANYWHERE, ""),
    "admit": ({"suspend": True}, {"suspend": False, "roles": ADMITTED}, FREE, HELD),
    "admit a part": ({"suspend": True}, {"suspend": False, "roles": roles(FLAVOR, replicas=1)}, FREE, HELD),
    "admit as a typed client": ({"suspend": True}, {"suspend": False, "roles": roles(TYPED)}, FREE, HELD),
    "evict": ({"roles": ADMITTED}, {"suspend": True, "roles": ORIGINAL}, ANYWHERE, ""),
    "evict as a typed client": ({"roles": ADMITTED}, {"suspend": True, "roles": roles(TYPED)}, ANYWHERE, ""),
    "evict what was admitted in part": (
        {"roles": roles(FLAVOR, replicas=1)},
        {"suspend": True, "roles": ORIGINAL},
        ANYWHERE,
        "",
    ),
    "evict twice": (
        {"suspend": True, "roles": ADMITTED},
        {"suspend": True, "roles": ORIGINAL},
        ANYWHERE,
        "",
    ),
    "move without a suspension": ({"roles": ADMITTED}, {"roles": roles(OTHER)}, FREE, HELD),
    "scale without a suspension": ({}, {"roles": roles(replicas=4)}, FREE, HELD),
    "reorder roles": ({"roles": TWO}, {"roles": TWO[::-1]}, FREE, HELD),
    "new engine with the suspension": ({}, {"suspend": True, "engine": {"name": "other"}}, ANYWHERE, ""),
    "new tiers with the suspension": (
        {},
        {"suspend": True, "checkpoint": {"tiers": {"local": {}}}},
        ANYWHERE,
        "",
    ),
    "other fencing with the suspension": (
        {},
        {"suspend": True, "recovery": {"fencing": "Strict"}},
        {None, "Pending", "Suspended"},
        FENCED,
    ),
    "other cluster": ({"suspend": True}, {"managedBy": "kueue.x-k8s.io/multikueue"}, set(), "immutable"),
}


@pytest.fixture(scope="module")
def namespace(control_plane: Any) -> str:
    return str(control_plane.namespace("queues"))


def made(control_plane: Any, namespace: str, phase: str | None, **spec: Any) -> dict[str, Any]:
    """Create a job and set its phase."""
    job: dict[str, Any] = control_plane.request("POST", path(namespace), body(**spec))
    if phase:
        where = path(namespace, job["metadata"]["name"], "status")
        job = control_plane.request("PATCH", where, {"status": {"phase": phase}}, MERGE)
    return job


def update(control_plane: Any, job: dict[str, Any], **change: Any) -> dict[str, Any]:
    """Patch the job and return the result. The patch has the resourceVersion that was read, as a patch of
    Kueue has.
    """
    meta = job["metadata"]
    patch = {"metadata": {"resourceVersion": meta["resourceVersion"], **change.pop("metadata", {})}, **change}
    found: dict[str, Any] = control_plane.request(
        "PATCH", path(meta["namespace"], meta["name"]), patch, MERGE
    )
    return found


@pytest.mark.parametrize("row", ROWS)
def test_a_queue_may_change_only_certain_fields_in_certain_phases(
    control_plane: Any, namespace: str, row: str
) -> None:
    before, change, accepted, words = ROWS[row]
    for phase in PHASES:
        job = made(control_plane, namespace, phase, **before)
        if phase in accepted:
            after = update(control_plane, job, spec=change)
            assert after["spec"]["suspend"] == change.get("suspend", before.get("suspend", False)), phase
        else:
            assert words in refusal(lambda job=job: update(control_plane, job, spec=change)), phase


def test_a_queue_admits_evicts_and_readmits_a_job(control_plane: Any, namespace: str) -> None:
    """A queue creates, admits, evicts and admits a job again. After each update, an update with an old
    resourceVersion is a conflict.
    """
    job = made(control_plane, namespace, "Suspended", suspend=True)
    stale, user = job, job["spec"]
    for template in (FLAVOR, OTHER):
        job = update(control_plane, job, spec={"suspend": False, "roles": roles(template)})
        with pytest.raises(urllib.error.HTTPError) as conflict:
            update(control_plane, stale, spec={"suspend": True})
        assert conflict.value.code == 409
        stale = job
        for phase in ("Pending", "Starting", "Running"):
            where = path(namespace, job["metadata"]["name"], "status")
            job = control_plane.request("PATCH", where, {"status": {"phase": phase}}, MERGE)
        job = update(control_plane, job, spec={"suspend": True, "roles": ORIGINAL})
        assert job["spec"] == user
        job = control_plane.request("PATCH", where, {"status": {"phase": "Suspended"}}, MERGE)


@pytest.mark.parametrize("phase", PHASES)
def test_labels_and_annotations_of_a_job_may_change(
    control_plane: Any, namespace: str, phase: str | None
) -> None:
    marks = {
        "labels": {"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/priority-class": "high"},
        "annotations": {"kueue.x-k8s.io/stopping": "true"},
        "finalizers": ["kueue.x-k8s.io/managed-resources"],
    }
    job = update(control_plane, made(control_plane, namespace, phase), metadata=marks)
    assert job["metadata"]["generation"] == 1, "the operator has nothing to do"
    update(control_plane, job, metadata={"finalizers": None})


def test_template_fields_that_a_queue_reads_are_kept(control_plane: Any, namespace: str) -> None:
    """Kueue counts the requests of the pods. It reads the priority from the job's label or, without a
    label, from the pod template.
    """
    template = {
        "spec": {
            "priorityClassName": "batch",
            "containers": [{"name": "worker", "resources": {"requests": {"cpu": "2"}}}],
            "overhead": {"cpu": "250m"},
            "topologySpreadConstraints": [{"maxSkew": 1}],
        }
    }
    job = made(control_plane, namespace, None, roles=roles(template))
    assert json.loads(json.dumps(job["spec"]["roles"][0]["template"])) == template
