"""Tests of the job specs that e2e tests use."""

from __future__ import annotations

from e2e.drive.job_specs import on_separate_nodes, single_threaded

ONE = {"name": "OMP_NUM_THREADS", "value": "1"}


def test_a_role_without_a_template_gets_one() -> None:
    role = single_threaded({"name": "worker", "replicas": 2})
    containers = [{"name": "worker", "env": [ONE]}]
    assert role == {"name": "worker", "replicas": 2, "template": {"spec": {"containers": containers}}}


def test_other_fields_of_a_template_are_unchanged() -> None:
    template = on_separate_nodes("job")
    found = single_threaded({"name": "worker", "template": {"metadata": {"labels": {"a": "b"}}, **template}})
    assert found["template"]["metadata"] == {"labels": {"a": "b"}}
    assert found["template"]["spec"]["affinity"] == template["spec"]["affinity"]


def test_the_first_container_keeps_its_variables() -> None:
    other = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    containers = [{"name": "worker", "env": [other]}, {"name": "sidecar"}]
    found = single_threaded({"template": {"spec": {"containers": containers}}})
    assert found["template"]["spec"]["containers"] == [
        {"name": "worker", "env": [ONE, other]},
        {"name": "sidecar"},
    ]


def test_a_given_number_of_threads_is_kept() -> None:
    given = {"name": "OMP_NUM_THREADS", "value": "2"}
    found = single_threaded({"template": {"spec": {"containers": [{"name": "worker", "env": [given]}]}}})
    assert found["template"]["spec"]["containers"][0]["env"] == [given]
