"""Tests of the chart's GuardPolicy on a real API server, with the rights that the chart grants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.error import HTTPError

import pytest
from e2e import rights

from convoy_crds.terms import LABEL_MANAGED, OPERATOR

from .conftest import Installation, eventually, running

POLICIES = "/apis/convoy.dev/v1alpha1/guardpolicies"


async def find(installation: Installation) -> dict[str, Any] | None:
    try:
        return await installation.call("GET", f"{POLICIES}/default")
    except HTTPError as error:
        if error.code == 404:
            return None
        raise


@pytest.fixture
async def clean(installation: Installation) -> AsyncIterator[Installation]:
    yield installation
    if await find(installation) is not None:
        await installation.call("DELETE", f"{POLICIES}/default")


async def test_the_policy_follows_the_value_of_the_chart(
    clean: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has(mode: str) -> bool:
        found = await find(clean)
        spec = {} if found is None else found["spec"]
        return bool(spec.get("mode") == mode and spec["priority"] == -1000)

    async def deleted() -> bool:
        return await find(clean) is None

    for mode in ("Observe", "Act"):
        async with running(clean, monkeypatch, default_policy=mode):
            await eventually(lambda mode=mode: has(mode), what=f"the policy has mode {mode}")
    async with running(clean, monkeypatch, default_policy="None"):
        await eventually(deleted, what="the policy is deleted")
    requested = clean.plane.audited_requests(clean.namespace, OPERATOR)
    used = {right for one in requested for right in one.needs}
    for verb in ("get", "create", "patch", "delete"):
        assert rights.Right(OPERATOR, "convoy.dev", "guardpolicies", verb, "default") in used
    assert [str(one) for one in requested if one.refused] == []


async def test_a_policy_of_a_person_stays(clean: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "GuardPolicy",
        "metadata": {"name": "default"},
        "spec": {"mode": "Observe", "priority": 3},
    }
    made = await clean.call("POST", POLICIES, body)

    async def reconciled() -> bool:
        found = await find(clean)
        return found is not None and "nodes" in (found.get("status") or {})

    async with running(clean, monkeypatch, default_policy="None"):
        await eventually(reconciled, what="the operator leads and has reconciled the policy")
    left = await find(clean)
    assert left is not None and left["metadata"]["uid"] == made["metadata"]["uid"]
    assert left["spec"]["priority"] == 3 and LABEL_MANAGED not in left["metadata"].get("labels", {})
