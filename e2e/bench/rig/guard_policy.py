"""A guard over all of a rig's nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from convoy_crds.meta import API_VERSION
from convoy_crds.terms import LABEL_NODE_HEALTH
from e2e.bench.rig.rig import Rig

API = f"/apis/{API_VERSION}"
TIMEOUT_SECONDS = 120.0
_NAME = "all"


@asynccontextmanager
async def guarded(rig: Rig) -> AsyncIterator[None]:
    """A GuardPolicy that acts, once every node's hardware is known; afterwards nothing of it is left."""
    policy = {"apiVersion": API_VERSION, "kind": "GuardPolicy", "metadata": {"name": _NAME}}
    await rig.api.create(f"{API}/guardpolicies", {**policy, "spec": {"mode": "Act"}})
    try:
        await rig.wait_until(lambda: labelled(rig, "Unverified"), TIMEOUT_SECONDS, "all hardware is known")
        yield
    finally:
        await rig.api.delete(f"{API}/guardpolicies/{_NAME}")
        await rig.wait_until(lambda: labelled(rig, None), TIMEOUT_SECONDS, "nothing is left on nodes")
        await rig.api.delete(f"{API}/nodehealths")
        await rig.api.delete(f"{API}/hardwareclasses")


async def labelled(rig: Rig, state: str | None) -> bool:
    """Return True if every node's label has this state; None: no label."""
    found = await rig.api.get("/api/v1/nodes")
    return {one["metadata"]["labels"].get(LABEL_NODE_HEALTH) for one in found["items"]} == {state}
