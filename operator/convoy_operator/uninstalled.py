"""The command `python -m convoy_operator.uninstalled`: it removes what the operator created outside the
helm release.

Helm runs it after everything else of the release is deleted, the operator's rights included. So nothing can
set the node label again that is removed here.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from convoy_controllers.resources import LEASES, NODES
from convoy_crds.terms import LABEL_AGENT_READY, LEASE_NAME
from convoy_operator import errors
from convoy_operator.client import KubernetesGateway
from convoy_operator.connection import connect, package_version
from convoy_operator.gateway import ApiGateway
from convoy_operator.metrics import Metrics
from convoy_operator.settings import from_environment

SECONDS = 100.0
"""Time limit in seconds for everything, shorter than that of helm's Job."""


async def clear(gateway: ApiGateway, namespace: str) -> None:
    """Remove the agent-ready label from all nodes, and delete the Lease. Raise errors.ApiError."""
    pages = gateway.pages(NODES, LABEL_AGENT_READY)
    names = [node["metadata"]["name"] async for page, _ in pages for node in page]
    patch = {"metadata": {"labels": {LABEL_AGENT_READY: None}}}
    for name in names:
        with suppress(errors.NotFound):  # the node was deleted, with its label
            await gateway.patch(NODES, None, name, patch)
    with suppress(errors.NotFound):  # no replica ever led here
        lease = await gateway.get(LEASES, namespace, LEASE_NAME)
        await gateway.delete(LEASES, namespace, LEASE_NAME, uid=lease["metadata"]["uid"])


async def run() -> int:
    """Run the clean-up; return 0, or 1 with the reason on stderr."""
    settings = from_environment()
    client = await connect(settings)
    try:
        gateway = KubernetesGateway(client, settings, Metrics(package_version()))
        async with asyncio.timeout(SECONDS):
            await clear(gateway, settings.namespace)
    except (errors.ApiError, TimeoutError) as fault:
        left = f"nodes may still have the label {LABEL_AGENT_READY}, and Lease {LEASE_NAME} may still exist"
        print(f"clean-up failed, {left}: {fault!r}", file=sys.stderr)
        return 1
    finally:
        await client.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
