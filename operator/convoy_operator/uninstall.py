"""`python -m convoy_operator.uninstall SECONDS [UNDO]`: whether Convoy may go. Helm asks before it goes.

A worker pod cannot finish its deletion without the agent of its node: taken away too early, it would be
Terminating for ever. When nothing stands in the way it waits for so many seconds, in which agents are told to
give back the memory of jobs that have just gone: it would else stay taken until the node starts anew; then it
looks once more. `UNDO` is the command that gives helm back the release of an uninstallation that was
refused: until then it can neither be listed nor upgraded.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from convoy_controllers.resources import NODES, PODS, Resource, of
from convoy_crds.kinds import KINDS
from convoy_crds.terms import LABEL_NODE_HEALTH, OPERATOR, TAINTS
from convoy_operator import errors
from convoy_operator.client import KubernetesGateway
from convoy_operator.connection import connect, package_version
from convoy_operator.gateway import ApiGateway, Object
from convoy_operator.metrics import Metrics
from convoy_operator.settings import from_environment

WORKERS = f"app.kubernetes.io/part-of=convoy,app.kubernetes.io/managed-by={OPERATOR}"
"""Selects the pods that the operator made."""
POD_KINDS = tuple(kind for kind in KINDS if kind.makes_pods)
SETTLE_SECONDS, POLL_SECONDS = 15.0, 1.0
_COLUMNS = "'NODE:.metadata.name,HEALTH:.metadata.labels.convoy\\.dev/node-health,TAINTS:.spec.taints[*].key'"
NAMED = 5
"""Objects that are named; of the others only the number is told."""


def objection(
    jobs: Mapping[str, Sequence[str]], pods: Sequence[str], nodes: Sequence[str] = (), undo: str = ""
) -> str | None:
    """Return what stands in the way of the uninstallation, and what to do about it; None if nothing does.

    `jobs`: by kind, the objects that have pods. `nodes`: those that are `marked`, which nobody else mends.
    """
    holders = {kind: jobs[kind.name] for kind in POD_KINDS if jobs.get(kind.name)}
    if not holders and not pods and not nodes:
        return None
    found = [
        *(_some(kind.name, names) for kind, names in holders.items()),
        _some("worker pod", pods),
        _some("marked node", nodes),
    ]
    lines = ["Convoy is still in use, nothing was removed. It has " + _list_of(filter(None, found)) + "."]
    if holders or pods:
        lines += [
            "Without the agent of its node a worker pod cannot be deleted. First:",
            *(f"  kubectl delete {kind.plural} --all -A --cascade=foreground" for kind in POD_KINDS),
            f"  kubectl wait --for=delete pod -A -l {WORKERS} --timeout=5m",
        ]
    if nodes:
        lines += [
            "Without the operator nobody takes its taints off nodes. First, and until none shows HEALTH or",
            "a taint of convoy.dev:",
            "  kubectl delete guardpolicies --all",
            f"  kubectl get nodes -o custom-columns={_COLUMNS}",
        ]
    if undo:
        lines += ["To keep Convoy instead, so that helm knows of it:", f"  {undo}"]
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
    """Whether a Node carries the guard's label, or one of its taints: without an agent it has these alone."""
    taints = node.get("spec", {}).get("taints", ())
    return LABEL_NODE_HEALTH in node["metadata"].get("labels", ()) or any(
        one.get("key") in TAINTS for one in taints
    )


async def check(gateway: ApiGateway, undo: str) -> str | None:
    """The objection of the cluster as it is now.

    Once jobs and policies are deleted, pods and marks on nodes go by themselves: they have a moment for that.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        jobs = {kind.name: await _names(gateway, of(kind)) for kind in POD_KINDS}
        pods = await _names(gateway, PODS, WORKERS)
        nodes = await _names(gateway, NODES, kept=marked)
        if any(jobs.values()) or not (pods or nodes) or time.monotonic() >= deadline:
            return objection(jobs, pods, nodes, undo)
        await asyncio.sleep(POLL_SECONDS)


async def _names(
    gateway: ApiGateway, resource: Resource, selector: str = "", kept: Callable[[Object], bool] = bool
) -> list[str]:
    """Of those that are to be `kept`. Objects may be many and large: no more than a page is held."""
    try:
        pages = gateway.pages(resource, selector)
        return [_name(one["metadata"]) async for page, _ in pages for one in page if kept(one)]
    except errors.NotFound:
        return []  # the kind itself is gone


def _name(metadata: Object) -> str:
    namespace, name = metadata.get("namespace"), metadata["name"]
    return f"{namespace}/{name}" if namespace else f"{name}"


async def check_twice(gateway: ApiGateway, seconds: float, undo: str) -> str | None:
    """The objection of the cluster now, or else `seconds` later."""
    found = await check(gateway, undo)
    if found is None and seconds:
        await asyncio.sleep(seconds)
        found = await check(gateway, undo)
    return found


async def run(seconds: float, undo: str) -> int:
    """The process: exit code 0 when nothing stands in the way, else 1 with the reason on stderr."""
    settings = from_environment()
    client = await connect(settings)
    try:
        gateway = KubernetesGateway(client, settings, Metrics(package_version()))
        found = await check_twice(gateway, seconds, undo)
    except errors.ApiError as error:
        found = f"cannot tell whether Convoy is still in use: {error}"
    finally:
        await client.close()
    if found:
        print(found, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run(float(sys.argv[1]), " ".join(sys.argv[2:]))))
