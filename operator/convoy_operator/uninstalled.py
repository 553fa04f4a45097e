"""The command `python -m convoy_operator.uninstalled`. It removes the objects and labels that the operator
created outside of the helm release.

Helm runs the command after everything else of the release is deleted, including the operator's permissions.
So no operator can set the removed node label again.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from convoy_controllers.resources import GUARD_POLICIES, LEASES, NODES
from convoy_crds.shown import error_line
from convoy_crds.terms import DEFAULT_POLICY, LABEL_AGENT_READY, LEASE_NAME
from convoy_operator import errors
from convoy_operator.catalogue import is_own
from convoy_operator.client import KubernetesGateway
from convoy_operator.connection import connect, package_version
from convoy_operator.gateway import ApiGateway
from convoy_operator.metrics import Metrics
from convoy_operator.settings import from_environment

SECONDS = 100.0
"""Time limit of the whole command in seconds. It is shorter than the limit of helm's Job."""


async def clear(gateway: ApiGateway, namespace: str) -> None:
    """Remove the agent-ready label from all nodes, and delete the Lease and the chart's GuardPolicy.

    Raises errors.ApiError if a request fails.
    """
    pages = gateway.pages(NODES, LABEL_AGENT_READY)
    names = [node["metadata"]["name"] async for page, _ in pages for node in page]
    patch = {"metadata": {"labels": {LABEL_AGENT_READY: None}}}
    for name in names:
        with suppress(errors.NotFound):  # the node was deleted together with its label
            await gateway.patch(NODES, None, name, patch)
    with suppress(errors.NotFound):  # there is no Lease if no replica ever led
        lease = await gateway.get(LEASES, namespace, LEASE_NAME)
        await gateway.delete(LEASES, namespace, LEASE_NAME, uid=lease["metadata"]["uid"])
    with suppress(errors.NotFound):  # the policy was deleted by hand, or together with its definition
        policy = await gateway.get(GUARD_POLICIES, None, DEFAULT_POLICY)
        if is_own(policy):
            await gateway.delete(GUARD_POLICIES, None, DEFAULT_POLICY, uid=policy["metadata"]["uid"])


async def run() -> int:
    """Run the clean-up. Return 0 after a success. Otherwise print the reason to stderr and return 1."""
    settings = from_environment()
    client = await connect(settings)
    try:
        gateway = KubernetesGateway(client, settings, Metrics(package_version()))
        async with asyncio.timeout(SECONDS):
            await clear(gateway, settings.namespace)
    except (errors.ApiError, TimeoutError) as fault:
        left = (
            f"nodes may still have the label {LABEL_AGENT_READY}, and Lease {LEASE_NAME} and GuardPolicy "
            f"{DEFAULT_POLICY} may still exist"
        )
        print(f"clean-up failed, {left}: {error_line(fault)}", file=sys.stderr)
        return 1
    finally:
        await client.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
