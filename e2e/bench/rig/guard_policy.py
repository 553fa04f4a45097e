"""A GuardPolicy for all nodes of a rig."""

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
    """Create a GuardPolicy in mode Act, and wait until all nodes are Unverified.

    After the block, delete the policy, its NodeHealths and its HardwareClasses.
    """
    policy = {"apiVersion": API_VERSION, "kind": "GuardPolicy", "metadata": {"name": _NAME}}
    await rig.api.create(f"{API}/guardpolicies", {**policy, "spec": {"mode": "Act"}})
    try:
        await rig.wait_until(lambda: labelled(rig, "Unverified"), TIMEOUT_SECONDS, "all nodes are Unverified")
        yield
    finally:
        await rig.api.delete(f"{API}/guardpolicies/{_NAME}")
        await rig.wait_until(lambda: labelled(rig, None), TIMEOUT_SECONDS, "no node has a health label")
        await rig.api.delete(f"{API}/nodehealths")
        await rig.api.delete(f"{API}/hardwareclasses")


async def labelled(rig: Rig, state: str | None) -> bool:
    """Return True if every node has the health label `state`. With None: if no node has a health label."""
    found = await rig.api.get("/api/v1/nodes")
    return {one["metadata"]["labels"].get(LABEL_NODE_HEALTH) for one in found["items"]} == {state}
