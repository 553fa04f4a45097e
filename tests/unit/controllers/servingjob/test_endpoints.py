"""Tests of the pods that EndpointSlices list."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.cached import CachedObject
from convoy_controllers.servingjob.endpoints import jobs_of, listed

READER: Any = None


def endpoint(uid: str, **conditions: Any) -> dict[str, Any]:
    return {"targetRef": {"kind": "Pod", "uid": uid}, "conditions": conditions}


def found(*endpoints: dict[str, Any], **labels: str) -> CachedObject:
    raw = {"metadata": {"labels": labels}, "endpoints": list(endpoints)}
    return CachedObject("ns", "llm-x", "uid", 1, raw)


def test_ready_pods_of_all_slices_are_listed() -> None:
    one = found(endpoint("a", ready=True), endpoint("b", ready=False), endpoint("c"))
    assert listed([one, found(endpoint("d", ready=None))]) == {"a", "c", "d"}


def test_no_slice_differs_from_an_empty_one() -> None:
    assert listed([]) is None
    assert listed([CachedObject("ns", "llm-x", "uid", 1, {"metadata": {}, "endpoints": None})]) == frozenset()


@pytest.mark.parametrize(("kind", "jobs"), [("ServingJob", [("ns", "llm")]), ("TrainingJob", []), ("", [])])
def test_a_slice_queues_only_a_serving_job(kind: str, jobs: list[tuple[str, str]]) -> None:
    labels = {"convoy.dev/job": "llm", "convoy.dev/kind": kind}
    assert list(jobs_of(READER, None, found(**labels))) == jobs
    assert list(jobs_of(READER, found(**labels), None)) == jobs
