"""A toy cluster with one SpotPool for tests of its plans. Time passes only by `wait`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from convoy_controllers.cached import Node
from convoy_controllers.children import EvictPod
from convoy_controllers.plan import Plan
from convoy_controllers.spotpool.notice import Notice
from convoy_controllers.spotpool.observed import Account, Claim, Observed, PoolPod, TraceLookup
from convoy_controllers.spotpool.plan import plan
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import NodeNotice, NoticeSource, SpotPoolStatus

START = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = {"convoy.dev/capacity": "spot"}
ON_DEMAND_LABELS = {"convoy.dev/capacity": "on-demand"}


def make_pool(**spec: Any) -> SpotPool:
    """Return a pool whose spot price is 0.25, a quarter of the on-demand price, at all times."""
    body = {
        "selector": {"matchLabels": LABELS},
        "maxNodes": 8,
        "allowedNamespaces": ["*"],
        "price": {
            "onDemandPerHour": 1.0,
            "spot": {"perHour": 0.25},
            "asOf": "2026-01-01T00:00:00Z",
            "maxAge": "9000h",
        },
        **spec,
    }
    metadata = {"name": "pool", "uid": "pool-uid", "generation": 1, "creationTimestamp": START}
    return SpotPool.model_validate({"metadata": metadata, "spec": body})


@dataclass
class SpotCluster:
    """The pool, its nodes and pods, and the clock."""

    pool: SpotPool = field(default_factory=make_pool)
    now: datetime = START
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, PoolPod] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    signals: list[Notice] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    trace: TraceLookup | None = None
    account: Account | None = None
    events: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def status(self) -> SpotPoolStatus:
        """Return the stored status of the pool, with the newest account."""
        newest = self.account
        if newest is None:
            return self.pool.status
        fields = {"cost": newest.cost, "provisional": newest.provisional}
        return self.pool.status.model_copy(update=fields)

    def observed(self) -> Observed:
        """Return the observation of the present moment."""
        spot = [one for one in self.nodes.values() if one.labels == LABELS]
        others = [one for one in self.nodes.values() if one.labels == ON_DEMAND_LABELS]
        on_demand = [one for one in others if any(pod.node == one.name for pod in self.pods.values())]
        names = {one.name for one in (*spot, *on_demand)}
        return Observed(
            pool=self.pool,
            nodes=tuple(spot),
            on_demand=tuple(on_demand),
            existing=frozenset(one.uid for one in self.nodes.values()),
            pods=tuple(pod for pod in self.pods.values() if pod.node in names),
            notices=tuple(self.signals),
            unread=dict(self.unread),
            claims=tuple(self.claims),
            trace=self.trace,
            account=self.account,
        )

    def step(self) -> Plan:
        """Make a plan, and carry it out: evicted pods are deleted at once."""
        made = plan(self.observed(), self.now)
        if made.status is not None:
            self.pool = self.pool.model_copy(update={"status": SpotPoolStatus.model_validate(made.status)})
        assert isinstance(made.memory, Account)
        self.account = made.memory
        self.events += [event.reason.name for event in made.events]
        for child in made.children:
            assert isinstance(child, EvictPod)
            self.evicted.append(child.name)
            self.pods.pop(child.name, None)
        return made

    def wait(self, seconds: float, tick: float = 10.0) -> None:
        """Let time pass, with a plan at least every `tick` seconds and at the end."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now = min(end, self.now + timedelta(seconds=tick))
            self.step()

    def restart_operator(self) -> None:
        """Drop all that the operator keeps in memory."""
        self.account = None

    def add_node(self, name: str, *, spot: bool = True, ready: bool = True) -> Node:
        """Add a node that was created at this moment."""
        uid = f"{name}-{next(self._numbers)}"
        self.nodes[name] = Node(
            name=name,
            uid=uid,
            version=1,
            agent_ready=True,
            ready=ready,
            labels=LABELS if spot else ON_DEMAND_LABELS,
            created=self.now,
            boot_id=f"boot-{uid}",
            provider_id=f"fake://{uid}",
        )
        return self.nodes[name]

    def change(self, name: str, **facts: Any) -> None:
        """Change fields of a node."""
        self.nodes[name] = replace(self.nodes[name], **facts)

    def remove_node(self, name: str) -> None:
        """Delete a node, and the pods on it."""
        del self.nodes[name]
        self.pods = {key: pod for key, pod in self.pods.items() if pod.node != name}

    def add_pod(self, name: str, node: str, namespace: str = "team", job: str = "job") -> None:
        """Add a pod of the pool on a node."""
        created = self.now.timestamp() + next(self._numbers) / 1e6
        self.pods[name] = PoolPod(namespace, name, f"uid-{name}", job, "worker", node, created)

    def claim(self, wanted: int, namespace: str = "team", job: str = "job", **facts: Any) -> None:
        """Add a role that wants pods."""
        since = START + timedelta(seconds=next(self._numbers))
        self.claims.append(Claim(namespace, job, "worker", wanted, since, **facts))

    def notify(
        self, node: str, source: NoticeSource = NoticeSource.FAKE, seconds: float | None = 60, **facts: Any
    ) -> Notice:
        """Add a notice about a node, with the seconds that it leaves; None for a notice without deadline."""
        there = self.nodes[node]
        deadline = 0.0 if seconds is None else self.now.timestamp() + seconds
        notice = Notice(source, node, there.uid, there.boot_id, there.provider_id, deadline=deadline, **facts)
        self.signals.append(notice)
        return notice

    def notice(self, node: str) -> NodeNotice:
        """Return the only notice about a node."""
        (found,) = [one for one in self.status.notices if one.node == node]
        return found

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        (found,) = [one for one in self.status.conditions if one.type == kind]
        return found.status, found.reason
