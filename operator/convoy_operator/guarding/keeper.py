"""Keeps nodes' health: looks, stores what was decided, and makes nodes and jobs as what is stored wants it.

In this order, so that an operator that dies at any point has done nothing that the next one does not know of:
the policy's status, the nodes' statuses, the marks on Nodes, and last the jobs that are moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from convoy_controllers.cached import Node, Parent, Pod
from convoy_controllers.children import Event
from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.nodehealth import fleet as fleets
from convoy_controllers.nodehealth.observed import Fleet
from convoy_controllers.nodehealth.record import ACCUSED
from convoy_controllers.nodehealth.seeing import Seen
from convoy_controllers.nodehealth.sweeping import UNASKED
from convoy_controllers.nodehealth.wanted import Marks, marks, marks_of_unknown
from convoy_controllers.resources import GUARD_POLICIES, HEALTH_SWEEPS, NODE_HEALTHS, NODES
from convoy_crds.guardpolicy import BreakerState, GuardPolicy, GuardPolicyStatus
from convoy_crds.nodehealth import NodeHealth, NodeHealthStatus, State
from convoy_crds.reasons.catalogue import Reasons, all_reasons
from convoy_crds.terms import TAINT_QUARANTINED, ConditionType
from convoy_operator import errors, views
from convoy_operator.events import Recorder
from convoy_operator.gateway import ApiGateway, ensure
from convoy_operator.guarding.marks import patches
from convoy_operator.guarding.seeing import Sight
from convoy_operator.metrics import Metrics
from convoy_operator.world import World

log = structlog.get_logger(__name__)

_LEAST_SECONDS = 0.2
"""Between two looks: news come in bursts."""
_MOST_SECONDS = 2.0
"""What is new waits no longer, whatever the last look has cost."""
_BUSY_SECONDS = 1.0
"""Between two looks while something is suspected or on its way back: durations come to an end unannounced."""
_COST = 10.0
"""Between two looks lies so many times the processor time that one took: it holds up everything else."""
_AGAIN = timedelta(seconds=15)
"""Between two tries to evict a pod that its PodDisruptionBudget keeps."""
_PARALLEL = 32
_KEPT, _KEPT_UNASKED = 86_400, 3_600
"""Seconds for which sweeps made for nodes stay when they are over; what they came to is in the NodeHealth."""
_REASONS = {one.name: one for one in all_reasons()}


class Keeper:
    """Of the leader alone."""

    def __init__(
        self,
        gateway: ApiGateway,
        world: World,
        sight: Sight,
        recorder: Recorder,
        metrics: Metrics,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._gateway = gateway
        self._world = world
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._clock = clock
        self._sight = sight
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._asked: dict[str, datetime] = {}
        """By uid, when pods were last asked to leave."""
        for store in (world.guard_policies, world.node_healths, world.health_sweeps):
            store.listen(self._changed)
        world.nodes.listen(self._node)

    def wake(self) -> None:
        """There is something new to look at."""
        self._news.set()

    async def run(self, unsettled: Callable[[], float]) -> None:
        """Looks again and again until cancelled. `unsettled`: seconds until it is known which agents are
        there; before that nothing is looked at, since nodes without one would seem to be silent.
        """
        while True:
            if (wait := unsettled()) > 0:
                await asyncio.sleep(wait)
                continue
            self._news.clear()
            began = self._clock()
            try:
                busy = await self.look()
            except Exception:
                log.exception("nodes' health not looked at")
                busy = False
            spent = self._clock() - began
            await asyncio.sleep(min(_MOST_SECONDS, max(_LEAST_SECONDS, _COST * spent)))
            try:
                async with asyncio.timeout(_BUSY_SECONDS if busy else fleets.LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def look(self) -> bool:
        """One look at everything; whether the next should come soon."""
        now = self._now()
        seen = self._sight.look()
        await self._each(
            self._create(name, node)
            for name, node in seen.unknown.items()
            # One that is there and cannot be read is logged, and left alone.
            if seen.policies.get(node) is not None and self._world.node_healths.get("", name) is None
        )
        for fleet in seen.fleets:
            await self._fleet(fleet, seen, now)
        await self._each(
            self._status(member.health, status)
            for member in seen.alone
            if (status := fleets.unguarded(member, now)) is not None
        )
        stored = {health.metadata.name: health for health in self._sight.healths()}
        policies = {one.metadata.name: one for one in self._sight.policies()}
        rules = {
            node: policies.get(one.metadata.name) if one is not None else None
            for node, one in seen.policies.items()
        }
        await self._each(self._marked(seen, stored, rules, now))
        await self._each(self._moved(seen, stored, rules, now))
        await self._each(self._swept(stored, policies))
        self._count(stored.values(), policies.values())
        return any(
            member.facts.suspicions or member.health.status.state in ACCUSED
            for fleet in seen.fleets
            for member in fleet.members
        )

    async def _fleet(self, fleet: Fleet, seen: Seen, now: datetime) -> None:
        plan = fleets.look(fleet, now)
        if plan.policy is not None and not await self._tried(self._policy(fleet.policy, plan.policy)):
            return
        members = {member.name: member for member in fleet.members}
        nodes = {name: node for node, name in seen.hardware.items()}

        async def turned(name: str, status: NodeHealthStatus) -> None:
            if not await self._status(members[name].health, status):
                return
            # Not after all the others: a node out of service takes pods until it carries its taint.
            node = self._world.nodes.get("", nodes.get(name, ""))
            change = patches(node, marks(status, fleet.policy), None, now) if node is not None else None
            if node is not None and change is not None and change.merge is not None:
                await self._patch(node, change.merge)

        await self._each(turned(name, status) for name, status in plan.statuses.items())

    async def _policy(self, policy: GuardPolicy, status: GuardPolicyStatus) -> None:
        parent = self._world.guard_policies.get("", policy.metadata.name)
        if parent is None or not (patch := merge_patch(parent.status, status.to_dict())):
            return
        raw = await self._gateway.patch_status(GUARD_POLICIES, None, parent.name, str(parent.version), patch)
        self._world.guard_policies.upsert(views.parent(raw), own=True)
        before, after = policy.status.breaker.state, status.breaker
        if after.state is not before:
            reason = _REASONS.get(after.reason, Reasons.BREAKER_OPEN)
            words = f"breaker {before} -> {after.state}: {after.message}"
            self._recorder.record(GUARD_POLICIES, dict(parent.raw), Event(reason, words))

    async def _status(self, health: NodeHealth, status: NodeHealthStatus) -> bool:
        """Whether it is stored now."""
        parent = self._world.node_healths.get("", health.metadata.name)
        if parent is None:
            return False
        if not (patch := merge_patch(parent.status, status.to_dict())):
            return True
        version = health.metadata.resource_version or str(parent.version)
        raw = await self._gateway.patch_status(NODE_HEALTHS, None, parent.name, version, patch)
        self._world.node_healths.upsert(views.parent(raw), own=True)
        known = health.status.history[-1].at if health.status.history else None
        for turn in status.history:
            if known is None or turn.at > known:
                words = f"{turn.before} -> {turn.after}: {turn.message}"
                log.info("node's health", node=turn.node, turn=words)
                self._recorder.record(NODE_HEALTHS, dict(parent.raw), Event(_REASONS[turn.reason], words))
        return True

    async def _create(self, name: str, node: str) -> None:
        raw = await ensure(self._gateway, NODE_HEALTHS, name)
        self._world.node_healths.upsert(views.parent(raw), own=True)
        log.info("hardware first seen", hardware=name, node=node)
        self.wake()

    def _marked(
        self,
        seen: Seen,
        stored: dict[str, NodeHealth],
        rules: dict[str, GuardPolicy | None],
        now: datetime,
    ) -> Iterable[Awaitable[None]]:
        """`rules`: by node, its policy as it is stored now."""
        for node in self._world.nodes:
            policy = rules.get(node.name)
            name = seen.named.get(node.name, "")
            if name not in stored and self._world.node_healths.get("", name) is not None:
                continue  # it cannot be read: what its taints are for is not known
            health = stored.get(seen.hardware.get(node.name, ""))
            qualified = None
            if health is None:
                facts = seen.strangers.get(node.name)
                wanted = marks_of_unknown(policy, facts) if facts is not None else Marks({})
            else:
                wanted = marks(health.status, policy)
                kinds = {one.type: one for one in health.status.conditions}
                qualified = kinds.get(ConditionType.QUALIFIED) if policy is not None else None
            change = patches(node, wanted, qualified, now)
            if change.merge is not None:
                yield self._patch(node, change.merge)
            if change.status is not None:
                yield self._show(node, change.status)

    async def _patch(self, node: Node, patch: Mapping[str, Any]) -> None:
        raw = await self._gateway.patch(NODES, None, node.name, patch)
        self._world.nodes.upsert(views.node(raw), own=True)
        log.info("node marked", node=node.name)

    async def _show(self, node: Node, body: Mapping[str, Any]) -> None:
        raw = await self._gateway.apply(NODES, None, node.name, body, subresource="status")
        self._world.nodes.upsert(views.node(raw), own=True)

    def _moved(
        self,
        seen: Seen,
        stored: dict[str, NodeHealth],
        rules: dict[str, GuardPolicy | None],
        now: datetime,
    ) -> Iterable[Awaitable[None]]:
        self._asked = {uid: at for uid, at in self._asked.items() if now - at < _AGAIN}
        stays = {one.node.name: one.node.stays for one in seen.all_facts if one.node is not None}
        for node, name in seen.hardware.items():
            health = stored.get(name)
            if health is None or not fleets.evicts(health.status, rules.get(node)):
                continue
            # Without its taint, what is evicted could be placed there again.
            if not _tainted(self._world.nodes.get("", node)):
                continue
            for pod in self._world.members_on(node):
                # People may have changed their mind since the drain began.
                stay = f"{pod.namespace}/{pod.job}" in stays.get(node, ())
                if not (stay or pod.view.deleting or pod.uid in self._asked):
                    self._asked[pod.uid] = now
                    yield self._evict(pod)

    def _swept(
        self, stored: Mapping[str, NodeHealth], policies: Mapping[str, GuardPolicy]
    ) -> Iterable[Awaitable[None]]:
        """Makes the HealthSweeps that nodes wait for."""
        for health in stored.values():
            ref, policy = health.status.sweep, policies.get(health.status.policy)
            node = health.status.node_ref.name
            if ref is None or policy is None or policy.spec.sweeps is None or not node:
                continue
            if self._world.health_sweeps.get("", ref.name) is None:
                kept = _KEPT_UNASKED if ref.cause in UNASKED else _KEPT
                yield self._sweep(
                    ref.name,
                    {
                        "nodes": [node],
                        "deadline": policy.spec.sweeps.deadline,
                        "ttlSecondsAfterFinished": kept,
                    },
                )

    async def _sweep(self, name: str, spec: Mapping[str, Any]) -> None:
        body = {
            "apiVersion": HEALTH_SWEEPS.api_version,
            "kind": HEALTH_SWEEPS.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        with contextlib.suppress(errors.AlreadyExists):
            raw = await self._gateway.create(HEALTH_SWEEPS, None, body)
            self._world.health_sweeps.upsert(views.parent(raw))
            log.info("sweep made", name=name)

    async def _evict(self, pod: Pod) -> None:
        await self._gateway.evict(pod.namespace, pod.name, uid=pod.uid)
        self._metrics.guard_evictions.inc()
        log.info("evicted", pod=f"{pod.namespace}/{pod.name}", node=pod.view.node)

    async def _each(self, tries: Iterable[Awaitable[object]]) -> None:
        async def one(attempt: Awaitable[object]) -> None:
            async with self._slots:
                await self._tried(attempt)

        await asyncio.gather(*(one(attempt) for attempt in tries))

    async def _tried(self, attempt: Awaitable[object]) -> bool:
        """Whether it was done. What was not is wanted again at the next look."""
        try:
            await attempt
        except errors.Conflict:
            # Somebody else has written; the watch brings it.
            return False
        except errors.ApiError as fault:
            log.warning("not written", error=str(fault))
            return False
        return True

    def _count(self, healths: Iterable[NodeHealth], policies: Iterable[GuardPolicy]) -> None:
        counts = dict.fromkeys(State, 0)
        for health in healths:
            counts[health.status.state] += 1
        for state, count in counts.items():
            self._metrics.guard_nodes.labels(state.value).set(count)
        self._metrics.guard_breakers.set(
            sum(one.status.breaker.state is not BreakerState.CLOSED for one in policies)
        )

    def _changed(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        if not own:
            self.wake()

    def _node(self, before: Node | None, after: Node | None, own: bool) -> None:
        if not own and _concern(before) != _concern(after):
            self.wake()


def _tainted(node: Node | None) -> bool:
    return node is not None and any(taint.get("key") == TAINT_QUARANTINED for taint in node.taints)


def _concern(node: Node | None) -> object:
    """What of a node concerns its health."""
    if node is None:
        return None
    return node.uid, node.ready, node.cordoned, node.taints, dict(node.labels), node.boot_id, node.qualified
