"""Tests of the request body that creates an object."""

from __future__ import annotations

from typing import Any

import pytest

from convoy.client.collection import manifest
from convoy.client.errors import Invalid
from convoy_crds.trainingjob import TrainingJob

SPEC = {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 2}]}


def model(**metadata: Any) -> TrainingJob:
    return TrainingJob.model_validate({"metadata": {"name": "job", **metadata}, "spec": SPEC})


def test_a_model_is_sent_without_status_and_server_set_fields() -> None:
    sent = manifest(TrainingJob, model(uid="u", resourceVersion="7", labels={"team": "a"}))
    assert set(sent) == {"apiVersion", "kind", "metadata", "spec"}
    assert sent["metadata"] == {"name": "job", "labels": {"team": "a"}, "annotations": {}}


def test_a_default_that_was_changed_in_place_is_sent() -> None:
    about = model()
    about.spec.recovery.max_restarts = 3
    assert manifest(TrainingJob, about)["spec"]["recovery"]["maxRestarts"] == 3


def test_a_dict_is_sent_unchanged() -> None:
    given = {"metadata": {"name": "job", "uid": "u"}, "spec": SPEC, "status": {}}
    sent = manifest(TrainingJob, given)
    assert sent == {
        "apiVersion": "convoy.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "job"}, "spec": SPEC
    }  # fmt: skip
    assert given["metadata"] == {"name": "job", "uid": "u"} and "status" in given


@pytest.mark.parametrize(("field", "value"), [("kind", "Engine"), ("apiVersion", "v1")])
def test_an_object_of_another_kind_is_refused(field: str, value: str) -> None:
    with pytest.raises(Invalid) as raised:
        manifest(TrainingJob, {field: value, "metadata": {}, "spec": SPEC})
    assert [one.path for one in raised.value.fields] == [field]
