"""`python -m convoy_operator.uninstalled`: takes away what the operator has made and no release owns.

Helm runs it when everything else of the release is deleted, the operator's rights among it: nobody puts the
label back that is taken off a node here.
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
"""For all of it: less than helm's Job has."""


async def clear(gateway: ApiGateway, namespace: str) -> None:
    """No node says that it has an agent, and there is no Lease. Raises errors.ApiError."""
    pages = gateway.pages(NODES, LABEL_AGENT_READY)
    names = [node["metadata"]["name"] async for page, _ in pages for node in page]
    patch = {"metadata": {"labels": {LABEL_AGENT_READY: None}}}
    for name in names:
        with suppress(errors.NotFound):  # the node is gone, and its label with it
            await gateway.patch(NODES, None, name, patch)
    with suppress(errors.NotFound):  # nobody has led here
        lease = await gateway.get(LEASES, namespace, LEASE_NAME)
        await gateway.delete(LEASES, namespace, LEASE_NAME, uid=lease["metadata"]["uid"])


async def run() -> int:
    """The process: exit code 0, or 1 with the reason on stderr."""
    settings = from_environment()
    client = await connect(settings)
    try:
        gateway = KubernetesGateway(client, settings, Metrics(package_version()))
        async with asyncio.timeout(SECONDS):
            await clear(gateway, settings.namespace)
    except (errors.ApiError, TimeoutError) as fault:
        left = f"the label {LABEL_AGENT_READY} may be left on nodes, and the Lease {LEASE_NAME} with them"
        print(f"{left}: {fault!r}", file=sys.stderr)
        return 1
    finally:
        await client.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
