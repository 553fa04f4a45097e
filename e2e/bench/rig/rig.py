"""A complete rig for a scenario: control plane, operator and agents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from convoy_crds.terms import LABEL_AGENT_READY, LABEL_JOB
from e2e.bench.rig.api import Api, ApiError, each
from e2e.bench.rig.audit import Entry, Log
from e2e.bench.rig.jobs import (
    JOBS,
    JOBSETS,
    PODS,
    SERVING_JOBS,
    SPACE,
    TRAINING_JOBS,
    Shape,
    serving_job,
    training_job,
)
from e2e.bench.rig.kwok import CRASHING
from e2e.bench.rig.machine_use import OtherLoad
from e2e.bench.rig.operator_process import OperatorProcess
from e2e.bench.rig.plane import Plane
from e2e.bench.rig.setup import Setup
from e2e.bench.rig.swarm import Swarm, identities
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.cluster.run import tail
from e2e.install import NAMESPACE

_CLEAR_SECONDS = 180.0
_POLL_SECONDS = 0.2
_NO_AGENT_SECONDS = 24 * 3600
"""Seconds for which the operator judges no agent, if none is to connect."""
_LONG_LEASE = {"CONVOY_LEASE_SECONDS": "120", "CONVOY_RENEW_SECONDS": "60"}
"""Settings of an operator that does not lose its Lease on a busy machine."""
# Processors that other programs may use on a quiet machine, and the seconds for which this is measured.
_QUIET_CORES, _QUIET_SECONDS = 0.2, 3.0


class Rig:
    """The running components of a rig, and the audit log of their requests."""

    def __init__(
        self, plane: Plane, api: Api, operator: OperatorProcess, progress: Progress, patience: float
    ) -> None:
        self.plane = plane
        self.api = api
        self.operator = operator
        self.report = progress.report
        self.log = Log(plane.control.audit_log)
        self.disturbance = 0.0
        """Number of processors that other programs used during a wait: the maximum over all waits since
        this attribute was last set to 0.
        """
        self.checkpoints = False
        """True if jobs are created with checkpoints in memory."""
        self._other_load = OtherLoad(plane.cluster)
        self._patience = patience
        self._swarm: Swarm | None = None

    @property
    def swarm(self) -> Swarm:
        """The agents of all nodes."""
        if self._swarm is None:
            raise ClusterError("the operator has not been started")
        return self._swarm

    @property
    def entries(self) -> list[Entry]:
        """Entries of the audit log since the last `log.restart`."""
        self.log.read()
        return self.log.entries

    @asynccontextmanager
    async def operating(self, qps: float, *, long_lease: bool = False) -> AsyncIterator[None]:
        """Run the operator and all agents while the block runs. The block starts when all nodes have the
        agent-ready label. With `long_lease`, the operator does not lose its Lease on a busy machine.
        """
        self.operator.start(qps, _LONG_LEASE if long_lease else None)
        try:
            await self.operator.ready(0)
            if self._swarm is None:
                certificates = await identities(self.api, NAMESPACE, self.plane.nodes)
                self._swarm = Swarm(self.api, self.operator.hub, certificates)
            await self.swarm.start()
            await self.operator.ready(len(self.plane.nodes))
            await self.wait_until(self._labelled, 180, "all nodes are labelled")
            yield
        finally:
            if self._swarm is not None:
                self._swarm.training = False
                await self._swarm.stop()
            await asyncio.to_thread(self.operator.stop)

    @asynccontextmanager
    async def operating_alone(self, qps: float) -> AsyncIterator[None]:
        """Run the operator without agents while the block runs.

        The operator then judges no agent, so nodes that are created with the agent-ready label keep it. No
        job forms, but the operator creates pods and chooses their places.
        """
        self.operator.start(qps, {**_LONG_LEASE, "CONVOY_AGENT_GRACE_SECONDS": str(_NO_AGENT_SECONDS)})
        try:
            await self.operator.ready(0)
            yield
        finally:
            await asyncio.to_thread(self.operator.stop)

    async def _labelled(self) -> bool:
        found = await self.api.get("/api/v1/nodes", labelSelector=f"{LABEL_AGENT_READY}=true")
        return len(found["items"]) == len(self.plane.nodes)

    async def wait_until(
        self, holds: Callable[[], Awaitable[bool]], seconds: float, what: str, every: float = 0.2
    ) -> None:
        """Poll `holds` every `every` seconds until it returns True. Raise ClusterError after `seconds`."""
        deadline = time.monotonic() + seconds
        while not await holds():
            if time.monotonic() > deadline:
                raise ClusterError(f"timed out after {seconds:g} s: {what}")
            await asyncio.sleep(every)

    async def wait_quiet(self) -> None:
        """Wait at most `patience` seconds until other programs use little processor time.

        Then restart the measurement of the other programs' load.
        """
        await self._other_load.wait_quiet(_QUIET_CORES, _QUIET_SECONDS, self._patience)
        self._other_load.restart()

    async def holds_in_time(
        self, holds: Callable[[], bool], seconds: float, program: str = "operator"
    ) -> bool:
        """Return True as soon as `holds` returns True.

        Return False after `seconds`, or as soon as the process `program` has ended.
        """
        deadline = time.monotonic() + seconds
        try:
            while not holds():
                if self.plane.programs.get(program) is None:
                    self.report(f"{program} has ended:\n{tail(self.plane.programs.log(program), 500)}")
                    return False
                if time.monotonic() > deadline:
                    self.report(f"timed out after {seconds:g} s")
                    return False
                await asyncio.sleep(_POLL_SECONDS)
            return True
        finally:
            self.disturbance = max(self.disturbance, self._other_load.cores())

    async def crash(self) -> None:
        """Crash the agents and kubelets of the crashing group, and make the group's pods unreachable."""
        self.swarm.crash(self.plane.crashing)
        await asyncio.to_thread(self.plane.programs.kill, f"kwok-{CRASHING}")
        await asyncio.to_thread(self.plane.cut, cut=True)

    async def reboot(self) -> None:
        """Start the crashed nodes again, with no pod running."""
        await asyncio.to_thread(self.plane.cut, cut=False)
        await asyncio.to_thread(self.plane.start_kwok, CRASHING)
        self.swarm.reboot(self.plane.crashing)

    async def create(self, shape: Shape) -> None:
        """Create the TrainingJobs of a shape as fast as the API server accepts them."""
        await each(
            shape.names,
            lambda name: self.api.create(
                TRAINING_JOBS, training_job(name, shape.workers, checkpoints=self.checkpoints)
            ),
        )

    async def create_servers(self, shape: Shape) -> None:
        """Create the ServingJobs of a shape as fast as the API server accepts them."""
        await each(shape.names, lambda name: self.api.create(SERVING_JOBS, serving_job(name, shape.workers)))

    async def each_server(self, names: Iterable[str], patch: dict[str, object]) -> None:
        """Apply a merge patch to the spec of each of these ServingJobs."""
        await each(names, lambda name: self.api.patch(f"{SERVING_JOBS}/{name}", {"spec": patch}))

    async def each_job(self, names: Iterable[str], patch: dict[str, object]) -> None:
        """Apply a merge patch to the spec of each of these jobs."""
        await each(names, lambda name: self.api.patch(f"{TRAINING_JOBS}/{name}", {"spec": patch}))

    async def clear(self) -> None:
        """Delete all jobs and pods, and wait until they no longer exist."""
        background = {"propagationPolicy": "Background"}
        for collection in (TRAINING_JOBS, SERVING_JOBS, JOBSETS):
            try:
                await self.api.delete(collection, **background)
            except ApiError as error:
                if error.status != 404:
                    raise
        deadline = time.monotonic() + _CLEAR_SECONDS
        while True:
            left = [
                name
                for name in (PODS, JOBS, TRAINING_JOBS, SERVING_JOBS)
                if (await self.api.get(name, limit="1"))["items"]
            ]
            if not left:
                break
            if time.monotonic() > deadline:
                raise ClusterError(f"still not deleted after {_CLEAR_SECONDS:g} s: {', '.join(left)}")
            # Delete the pods directly, because the garbage collector would take longer.
            await self.api.delete(PODS, gracePeriodSeconds="0")
            await asyncio.sleep(0.5)
        await self.api.delete(f"/api/v1/namespaces/{SPACE}/events")
        # Give the operator time to handle the last watch events of the deleted objects.
        await asyncio.sleep(2.0)


async def slots_with_two_pods(api: Api) -> list[str]:
    """Return the slots that have more than one pod. A slot is written as JOB/INDEX."""
    found = await api.get(PODS, labelSelector=LABEL_JOB)
    seen: set[tuple[str, str]] = set()
    doubled = []
    for pod in found["items"]:
        labels = pod["metadata"]["labels"]
        slot = (labels[LABEL_JOB], labels["convoy.dev/index"])
        if slot in seen:
            doubled.append("/".join(slot))
        seen.add(slot)
    return doubled


@asynccontextmanager
async def running_rig(
    nodes: int, progress: Progress, patience: float, setup: Setup | None = None
) -> AsyncIterator[Rig]:
    """Create a rig and yield it. Remove the rig after the block."""
    plane = Plane(nodes, progress, setup)
    try:
        await asyncio.to_thread(plane.up)
        pki = plane.control.pki
        async with Api(
            plane.control.server, pki / "kubernetes-ca.crt", pki / "admin.crt", pki / "admin.key"
        ) as api:
            await _create_nodes(plane, api)
            operator = OperatorProcess(plane)
            await operator.prepare(api)
            yield Rig(plane, api, operator, progress, patience)
    finally:
        # A second signal must not interrupt the removal. If it did, `make clean` would remove the rest.
        await asyncio.shield(asyncio.to_thread(plane.down))


async def _create_nodes(plane: Plane, api: Api) -> None:
    """Create the jobs' namespace and the fake nodes, and wait until the nodes are Ready."""
    await api.ensure("/api/v1/namespaces", {"metadata": {"name": SPACE}})
    await each(plane.node_bodies(), lambda body: api.create("/api/v1/nodes", body))
    deadline = time.monotonic() + 180
    while True:
        found = await api.get("/api/v1/nodes")
        states = [
            condition["status"]
            for node in found["items"]
            for condition in node["status"].get("conditions", ())
            if condition["type"] == "Ready"
        ]
        if states.count("True") == len(plane.nodes):
            break
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{states.count('True')} of {len(plane.nodes)} fake nodes are ready after 180 s;"
                " see the logs of kwok"
            )
        await asyncio.sleep(0.3)
    account = f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"
    while True:
        try:
            await api.get(account)
            return
        except ApiError as error:
            if error.status != 404 or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)
