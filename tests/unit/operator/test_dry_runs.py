"""Tests of dry runs of templates: their number, and the meaning of a rejection."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.cached import CachedObject
from convoy_controllers.trainingjob.controller import explain
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.layout import slots
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import dry_runs, errors, views
from convoy_operator.dry_runs import DryRuns

from .conftest import FakeApi

UNKNOWN = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.x"'
SPEC_X = Refusal("there is no such field", "spec.roles[0].template.spec.x")


def parent(image: str = "a", name: str = "job", namespace: str = "ns") -> CachedObject:
    container = {"name": "worker", "image": image, "command": ["a"]}
    roles = [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}]
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
    return views.cached_object({"metadata": metadata, "spec": {"roles": roles}})


def bodies(job: CachedObject, number: int = 0) -> list[dict[str, Any]]:
    model = TrainingJob.model_validate(job.raw)
    return [pod(model, None, slots(model)[number])]


async def refused(tried: DryRuns, job: CachedObject, pods: list[dict[str, Any]]) -> dict[str, Refusal]:
    """Run the dry run that the reconciler runs for a job, and return its result."""
    model = TrainingJob.model_validate(job.raw)

    def explained(body: Any, fault: errors.Invalid) -> Refusal | None:
        return explain(model, body, fault.message, fault.causes)

    return await tried.refused(job.namespace, pods, explained)


async def test_a_template_has_one_dry_run_per_namespace(api: FakeApi) -> None:
    tried = DryRuns(api)
    for job, number in (
        (parent(), 0),
        (parent(), 1),
        (parent(name="other"), 0),
        (parent(image="b"), 1),
        (parent(image="b", namespace="apart"), 0),
    ):
        assert await refused(tried, job, bodies(job, number)) == {}
    assert api.count("dry_run", "pods") == 3


async def test_the_number_of_cached_templates_is_bounded(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_runs, "REMEMBERED", 2)
    tried = DryRuns(api)
    for image in ("a", "b", "a", "c", "a", "b"):
        await refused(tried, parent(image=image), bodies(parent(image=image)))
    assert api.count("dry_run", "pods") == 4, "a, b, c, and again b, the least recently used"


async def test_without_untested_pods_no_request_is_sent(api: FakeApi) -> None:
    assert await refused(DryRuns(api), parent(), []) == {}
    assert api.calls == []


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (errors.Invalid(400, UNKNOWN), SPEC_X),
        (errors.Forbidden(403, "exceeded quota"), Refusal("exceeded quota")),
        (errors.WebhookFailed(500, "failed calling webhook"), Refusal("failed calling webhook")),
        (errors.Invalid(400, 'admission webhook "w" does not support dry run'), None),
        (errors.Invalid(422, 'admission webhook "w" denied the request: no'), None),
        (errors.AlreadyExists(409, "exists", "AlreadyExists"), None),
    ],
)
async def test_only_some_refusals_count_as_verdicts(
    api: FakeApi, fault: errors.ApiError, found: Refusal | None
) -> None:
    api.fail = lambda verb, plural, name: fault
    verdict = await refused(DryRuns(api), parent(), bodies(parent()))
    assert verdict == ({"job-worker-0": found} if found else {})


async def test_an_unavailable_server_gives_no_verdict(api: FakeApi) -> None:
    api.fail = lambda verb, plural, name: errors.Unavailable(503, "down")
    with pytest.raises(errors.Unavailable):
        await refused(DryRuns(api), parent(), bodies(parent()))
