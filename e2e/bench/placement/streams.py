"""Runs a stream of jobs on the rig under one way of placement, and records where each job ran."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.placement.numbering import order
from convoy_controllers.placement.topology import topology
from convoy_crds.layout import numbered, slots
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob
from e2e.bench.placement import racks
from e2e.bench.placement.racks import Arrival, Racks
from e2e.bench.rig.api import ApiError, Object, each
from e2e.bench.rig.jobs import PODS, TRAINING_JOBS, training_job
from e2e.bench.rig.rig import Rig

TENANTS = "tenants"
"""Namespace of the pods of other owners."""
_TENANT_PODS = f"/api/v1/namespaces/{TENANTS}/pods"
QPS = 100.0
"""Limit of the operator's API requests per second: the chart's own."""
LIVE = 12
"""Number of jobs that run at once. The oldest is deleted before the next one arrives."""
JOB_SECONDS = 60.0
"""Maximum seconds from the creation of a job until all its pods have nodes."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class Way:
    """A way to place the pods of a job."""

    title: str
    placement: Mapping[str, Any]
    """`spec.placement` of the jobs."""
    affinity: Callable[[str], Mapping[str, Any]] = lambda job: {}
    """(name of the job) -> affinity of its pods."""


def _near_own_pods(job: str) -> dict[str, Any]:
    term = {"topologyKey": racks.RACK, "labelSelector": {"matchLabels": {LABEL_JOB: job}}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


_KEYS = {"topologyKeys": list(racks.KEYS)}
CONVOY = Way("pack: Preferred", {**_KEYS, "pack": "Preferred", "gang": "None"})
OFF = Way("pack: None", {**_KEYS, "pack": "None", "gang": "None"})
STOCK = Way("no placement", {"gang": "None"})
AFFINITY = Way("pod affinity to the rack", {"gang": "None"}, _near_own_pods)
WAYS = (CONVOY, OFF, STOCK, AFFINITY)


@dataclass
class Outcome:
    """One job of a stream."""

    arrival: Arrival
    packable: bool
    """True if some placement would have put all pods into one rack when the job was created."""
    racks: int | None = None
    """Number of racks in which its pods have nodes; None if not all got nodes in time."""
    hops: int | None = None
    """Hops of its ring."""


@dataclass
class Stream:
    """A stream of jobs under one way of placement."""

    rig: Rig
    way: Way
    state: Racks
    outcomes: list[Outcome] = field(default_factory=list)
    _live: deque[tuple[Arrival, dict[str, str]]] = field(default_factory=deque)

    async def run(self, count: int, seed: int) -> list[Outcome]:
        """Run the jobs one after another, and delete them at the end."""
        try:
            for arrival in racks.stream(count, seed):
                if len(self._live) >= LIVE:
                    await self._drop_oldest()
                self.outcomes.append(await self._place(arrival))
        finally:
            while self._live:
                await self._drop_oldest()
        return self.outcomes

    async def _place(self, arrival: Arrival) -> Outcome:
        outcome = Outcome(arrival, self.state.fits_one_rack(arrival))
        body = job_body(arrival, self.way)
        await self.rig.api.create(TRAINING_JOBS, body)
        nodes = await self._bound(arrival)
        self._live.append((arrival, nodes))
        for node in nodes.values():
            self.state.add(node, arrival.cpus)
        if len(nodes) == arrival.pods:
            ring = self._ring(body, nodes)
            outcome.racks = self.state.racks_used(ring)
            outcome.hops = self.state.ring_hops(ring)
        return outcome

    def _ring(self, body: Object, nodes: Mapping[str, str]) -> list[str]:
        """Return the nodes in the order of the ranks: along the topology if the job has topology keys."""
        layout = slots(TrainingJob.model_validate(body))
        if "topologyKeys" in self.way.placement:
            found = topology(racks.KEYS, self.state.labels)
            layout = numbered(layout, order(layout, nodes, found))
        return [nodes[slot.pod] for slot in layout]

    async def _bound(self, arrival: Arrival) -> dict[str, str]:
        """Wait until all pods of the job have nodes. Return the nodes by name of the pod."""
        deadline = time.monotonic() + JOB_SECONDS
        while True:
            found = await self.rig.api.get(PODS, labelSelector=f"{LABEL_JOB}={arrival.name}")
            nodes = {
                pod["metadata"]["name"]: pod["spec"]["nodeName"]
                for pod in found["items"]
                if pod["spec"].get("nodeName")
            }
            if len(nodes) == arrival.pods:
                return nodes
            if self.rig.operator.revive():
                # On a busy machine the operator may lose its Lease.
                self.rig.report("the operator has ended, and starts again")
            if time.monotonic() > deadline:
                self.rig.report(f"{len(nodes)} pods of {arrival} have nodes after {JOB_SECONDS:g} s")
                return nodes
            await asyncio.sleep(_POLL_SECONDS)

    async def _drop_oldest(self) -> None:
        arrival, nodes = self._live.popleft()
        await self.rig.api.delete(f"{TRAINING_JOBS}/{arrival.name}", propagationPolicy="Background")
        which = {"labelSelector": f"{LABEL_JOB}={arrival.name}"}
        deadline = time.monotonic() + JOB_SECONDS
        while True:
            # Delete the pods directly, because the garbage collector would take longer.
            await self.rig.api.delete(PODS, gracePeriodSeconds="0", **which)
            if not (await self.rig.api.get(PODS, **which))["items"] or time.monotonic() > deadline:
                break
            await asyncio.sleep(_POLL_SECONDS)
        for node in nodes.values():
            self.state.add(node, -arrival.cpus)


def job_body(arrival: Arrival, way: Way) -> Object:
    """Return the TrainingJob of an arrival."""
    body = training_job(arrival.name, arrival.pods)
    resources = {"requests": {"cpu": str(arrival.cpus)}}
    spec: Object = {"containers": [{"name": "worker", "resources": resources}]}
    if affinity := way.affinity(arrival.name):
        spec["affinity"] = dict(affinity)
    body["spec"]["roles"][0]["template"] = {"spec": spec}
    body["spec"]["placement"] = dict(way.placement)
    return body


async def fill(rig: Rig, seed: int) -> Racks:
    """Replace the pods of other owners by those of this seed. Return the room that they leave."""
    names = rig.plane.nodes
    state = Racks(names)
    await rig.api.ensure("/api/v1/namespaces", {"metadata": {"name": TENANTS}})
    await _empty(rig)
    bodies = []
    for number, (index, cpus) in enumerate(racks.tenants(len(names), seed)):
        state.add(names[index], cpus)
        container = {"name": "work", "image": "work", "resources": {"requests": {"cpu": str(cpus)}}}
        bodies.append(
            {
                "metadata": {"name": f"tenant-{number}"},
                "spec": {
                    "nodeName": names[index],
                    "containers": [container],
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 0,
                },
            }
        )
    await rig.wait_until(lambda: _account(rig), 30, "the account of other owners exists")
    await each(bodies, lambda body: rig.api.create(_TENANT_PODS, body))
    await rig.wait_until(lambda: _running(rig, len(bodies)), 120, "all pods of other owners run", every=1.0)
    return state


async def _account(rig: Rig) -> bool:
    try:
        await rig.api.get(f"/api/v1/namespaces/{TENANTS}/serviceaccounts/default")
    except ApiError:
        return False
    return True


async def _running(rig: Rig, count: int) -> bool:
    found = await rig.api.get(_TENANT_PODS, fieldSelector="status.phase=Running")
    return len(found["items"]) == count


async def _empty(rig: Rig) -> None:
    await rig.api.delete(_TENANT_PODS, gracePeriodSeconds="0")

    async def empty() -> bool:
        return not (await rig.api.get(_TENANT_PODS, limit="1"))["items"]

    await rig.wait_until(empty, 120, "the earlier pods of other owners are gone", every=0.5)
