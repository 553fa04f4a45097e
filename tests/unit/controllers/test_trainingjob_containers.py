"""Tests of fields in worker pods that are not part of the intent hash. They help people who read logs, and
the operator.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.testing.builders import make_job
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.workers import pod as worker_pod
from convoy_crds.layout import slots
from convoy_crds.terms import ANNOTATION_CONTAINER, ANNOTATION_DEFAULT_CONTAINER, ANNOTATION_INTENT

TRAINER = {"name": "trainer", "image": "i", "command": ["x"]}


def made(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"metadata": metadata or {}, "spec": {"containers": [TRAINER], **spec}}
    job = make_job(engine=None, roles=[{"name": "worker", "replicas": 1, "template": template}])
    return pod(job, None, slots(job)[0])


def test_kubectl_defaults_to_the_container_of_the_ranks() -> None:
    found = made()["metadata"]["annotations"]
    assert (found[ANNOTATION_CONTAINER], found[ANNOTATION_DEFAULT_CONTAINER]) == ("trainer", "trainer")
    own = made({"annotations": {ANNOTATION_DEFAULT_CONTAINER: "log", ANNOTATION_CONTAINER: "log"}})
    found = own["metadata"]["annotations"]
    assert (found[ANNOTATION_CONTAINER], found[ANNOTATION_DEFAULT_CONTAINER]) == ("trainer", "log")


def test_end_of_the_log_is_kept_as_the_termination_message() -> None:
    own = {"name": "own", "image": "i", "terminationMessagePolicy": "File"}
    spec = made(containers=[TRAINER, {"name": "log", "image": "i"}, own], initContainers=[{"name": "fetch"}])[
        "spec"
    ]
    found = {
        one["name"]: one["terminationMessagePolicy"] for one in spec["containers"] + spec["initContainers"]
    }
    assert found == {
        "trainer": "FallbackToLogsOnError",
        "log": "FallbackToLogsOnError",
        "own": "File",
        "fetch": "FallbackToLogsOnError",
    }


@pytest.mark.parametrize("field", ["restartPolicy", "restartPolicyRules"])
def test_kubelet_does_not_restart_a_launcher(field: str) -> None:
    own = {"restartPolicy": "Always", "restartPolicyRules": [{"action": "Restart"}]}
    ranks, beside = made(containers=[{**TRAINER, **own}, {**own, "name": "log", "image": "i"}])["spec"][
        "containers"
    ]
    assert field not in ranks and field in beside


def test_diagnostic_fields_are_not_part_of_the_intent_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    intent = made()["metadata"]["annotations"][ANNOTATION_INTENT]
    monkeypatch.setattr(worker_pod, "_add_diagnostics", lambda body: None)
    plain = made()["metadata"]["annotations"]
    assert plain == {ANNOTATION_INTENT: intent}
