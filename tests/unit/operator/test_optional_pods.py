"""Tests of refused Independent pods: they hold up no pod of the process group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from convoy_controllers.children import Create
from convoy_controllers.plan import Plan
from convoy_controllers.resources import PODS
from convoy_controllers.workers.refusal import Refusal
from convoy_operator import errors

from .conftest import FakeApi
from .test_reconcile import KEY, Harness


class Pods:
    """A job that wants pods of a process group, and optional ones."""

    def __init__(self, api: FakeApi) -> None:
        self.required, self.optional = ["job-worker-0"], ["job-rollout-0", "job-rollout-1"]
        self.it = Harness(api)
        self.it.plan = self.plan

    def plan(self, parent: Any, refused: Mapping[str, Refusal]) -> Plan:
        wanted = [(name, False) for name in self.optional] + [(name, True) for name in self.required]
        return Plan(
            children=tuple(
                Create(PODS, self.it.pod(name), dry_run=not required, required=required)
                for name, required in wanted
                if name not in self.names and name not in refused
            )
        )

    @property
    def names(self) -> set[str]:
        return {name for plural, _, name in self.it.api.objects if plural == "pods"}


@pytest.mark.parametrize("verb", ["create", "dry_run"])
async def test_a_refused_optional_pod_holds_up_no_other(api: FakeApi, verb: str) -> None:
    pods = Pods(api)
    api.fail = lambda did, plural, name: (
        errors.Forbidden(403, "exceeded quota") if did == verb and "rollout" in name else None
    )
    for _ in range(3):
        await pods.it.reconciler.handle(KEY)
        pods.it.time += 0.1
    assert pods.names == {"job-worker-0"}
    pods.required.append("job-worker-1")
    await pods.it.reconciler.handle(KEY)
    assert pods.names == {"job-worker-0", "job-worker-1"}, "also while the back-off runs"
    tried = api.count(verb, "pods")
    for _ in range(5):
        await pods.it.reconciler.handle(KEY)
    assert api.count(verb, "pods") - tried <= 1, "refused pods are retried with back-off"
    api.fail = lambda did, plural, name: None
    pods.it.time += 600
    await pods.it.reconciler.handle(KEY)
    assert pods.names == {*pods.required, *pods.optional}
    assert pods.it.refusals.wait(pods.it.uid) is None


async def test_a_refused_pod_of_the_group_holds_up_the_optional_ones(api: FakeApi) -> None:
    pods = Pods(api)
    api.fail = lambda did, plural, name: (
        errors.Forbidden(403, "exceeded quota") if did == "create" and "worker" in name else None
    )
    for _ in range(3):
        await pods.it.reconciler.handle(KEY)
    assert pods.names == set()
