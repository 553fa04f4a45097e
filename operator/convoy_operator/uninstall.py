"""The command `python -m convoy_operator.uninstall SECONDS [UNDO]`. It checks if Convoy may be uninstalled.
Helm runs it before an uninstallation.

Kubernetes cannot finish the deletion of a worker pod without the agent on its node. If the agents were
removed first, the pod would stay Terminating forever.

If nothing prevents the uninstallation, the command waits for SECONDS and checks again. During the wait the
operator orders the agents to release the memory of deleted jobs. Otherwise this memory stays allocated
until the node restarts.

After a refused uninstallation, helm can neither list nor upgrade the release. UNDO is the command that
restores the release.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from convoy_controllers.resources import NODES, PODS, Resource, resource_of
from convoy_crds.kinds import KINDS
from convoy_crds.terms import LABEL_NODE_HEALTH, OPERATOR, TAINTS
from convoy_operator import errors
from convoy_operator.client import KubernetesGateway
from convoy_operator.connection import connect, package_version
from convoy_operator.gateway import ApiGateway, Object
from convoy_operator.metrics import Metrics
from convoy_operator.settings import from_environment

WORKERS = f"app.kubernetes.io/part-of=convoy,app.kubernetes.io/managed-by={OPERATOR}"
"""Label selector of the pods that the operator has created."""
JOB_KINDS = tuple(sorted((kind for kind in KINDS if kind.admitted), key=lambda kind: not kind.creates))
"""Kinds whose objects have pods. Kinds that create other jobs come first, because they would create them
again.
"""
MARKING_KINDS = ",".join(kind.plural for kind in KINDS if kind.marks_nodes)
"""Kinds because of whose objects nodes are marked, as `kubectl delete` takes them."""
SETTLE_SECONDS, POLL_SECONDS = 15.0, 1.0
_COLUMNS = "'NODE:.metadata.name,HEALTH:.metadata.labels.convoy\\.dev/node-health,TAINTS:.spec.taints[*].key'"
NAMED = 5
"""Maximum number of objects of each kind that a message lists by name."""


def objection(
    jobs: Mapping[str, Sequence[str]], pods: Sequence[str], nodes: Sequence[str] = (), undo: str = ""
) -> str | None:
    """Return a message that says what prevents the uninstallation and what to do. Return None if nothing
    prevents it.

    `jobs` holds the objects of each kind that has pods, by kind. `nodes` holds the nodes for which `marked`
    is True. They prevent the uninstallation, because only the operator removes its label and taints.
    """
    holders = {kind: jobs[kind.name] for kind in JOB_KINDS if jobs.get(kind.name)}
    if not holders and not pods and not nodes:
        return None
    found = [
        *(_some(kind.name, names) for kind, names in holders.items()),
        _some("worker pod", pods),
        _some("marked node", nodes),
    ]
    lines = [
        "Convoy is still in use, so nothing was removed. Still present: "
        + _list_of(filter(None, found))
        + "."
    ]
    if holders or pods:
        lines += [
            "Worker pods can only be deleted while their node's agent runs. Delete them first:",
            *(f"  kubectl delete {kind.plural} --all -A --cascade=foreground" for kind in JOB_KINDS),
            f"  kubectl wait --for=delete pod -A -l {WORKERS} --timeout=5m",
        ]
    if nodes:
        lines += [
            "Only the operator removes its taints from nodes. Delete the objects that cause them first, and",
            "wait until no node shows a HEALTH value or a convoy.dev taint:",
            f"  kubectl delete {MARKING_KINDS} --all",
            f"  kubectl get nodes -o custom-columns={_COLUMNS}",
        ]
    if undo:
        lines += ["To keep Convoy instead, restore the helm release:", f"  {undo}"]
    return "\n".join(lines)


def _list_of(parts: Iterable[str]) -> str:
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


def _some(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = ", ..." if len(names) > NAMED else ""
    plural = "" if len(names) == 1 else "s"
    return f"{len(names)} {what}{plural} ({', '.join(sorted(names)[:NAMED])}{more})"


def marked(node: Object) -> bool:
    """Return True if a Node carries the guard's label or one of its taints. Both may be present on a node
    without an agent.
    """
    taints = node.get("spec", {}).get("taints", ())
    return LABEL_NODE_HEALTH in node["metadata"].get("labels", ()) or any(
        one.get("key") in TAINTS for one in taints
    )


async def check(gateway: ApiGateway, undo: str) -> str | None:
    """Return the reason why Convoy may not be uninstalled now; None if it may.

    After the jobs, and the objects because of which nodes are marked, are deleted, their pods, and the labels
    and taints on nodes, disappear by themselves. The check waits up to SETTLE_SECONDS for that.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        jobs = {kind.name: await _names(gateway, resource_of(kind)) for kind in JOB_KINDS}
        pods = await _names(gateway, PODS, WORKERS)
        nodes = await _names(gateway, NODES, kept=marked)
        if any(jobs.values()) or not (pods or nodes) or time.monotonic() >= deadline:
            return objection(jobs, pods, nodes, undo)
        await asyncio.sleep(POLL_SECONDS)


async def _names(
    gateway: ApiGateway, resource: Resource, selector: str = "", kept: Callable[[Object], bool] = bool
) -> list[str]:
    """Return the names of the objects for which `kept` returns True. The objects may be many and large, so
    only one page of them is in memory at a time.
    """
    try:
        pages = gateway.pages(resource, selector)
        return [_name(one["metadata"]) async for page, _ in pages for one in page if kept(one)]
    except errors.NotFound:
        return []  # The cluster does not know this kind.


def _name(metadata: Object) -> str:
    namespace, name = metadata.get("namespace"), metadata["name"]
    return f"{namespace}/{name}" if namespace else f"{name}"


async def check_twice(gateway: ApiGateway, seconds: float, undo: str) -> str | None:
    """Check, and check again after `seconds` if the first check found no objection. Return the objection."""
    found = await check(gateway, undo)
    if found is None and seconds:
        await asyncio.sleep(seconds)
        found = await check(gateway, undo)
    return found


async def run(seconds: float, undo: str) -> int:
    """Run the check. Return 0 if Convoy may be uninstalled. Otherwise print the reason to stderr and return
    1.
    """
    settings = from_environment()
    client = await connect(settings)
    try:
        gateway = KubernetesGateway(client, settings, Metrics(package_version()))
        found = await check_twice(gateway, seconds, undo)
    except errors.ApiError as error:
        found = f"cannot check if Convoy is still in use: {error}"
    finally:
        await client.close()
    if found:
        print(found, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run(float(sys.argv[1]), " ".join(sys.argv[2:]))))
