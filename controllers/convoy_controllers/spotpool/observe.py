"""Observes a SpotPool: its nodes, the pods on them, the notices about them, and the roles that claim it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from convoy_controllers.cached import Node
from convoy_controllers.keys import Key
from convoy_controllers.reader import Reader
from convoy_controllers.spotpool.members import POOL_FIELD, pool_of
from convoy_controllers.spotpool.observed import Account, Claim, Observed, PoolPod
from convoy_crds import trainingjob
from convoy_crds.spotpool import KIND, SpotPool
from convoy_crds.terms import LABEL_ROLE, LABEL_SPOT_POOL
from convoy_crds.trainingjob import Role, TrainingJob
from convoy_crds.trainingjob_status import TERMINAL


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the pool with all inputs of the decision; None if the pool does not exist."""
    pool = reader.get(KIND, key.name)
    if pool is None:
        return None
    pools = reader.all(KIND)
    nodes: list[Node] = []
    overlaps: Counter[str] = Counter()
    for node in reader.nodes():
        if pool.spec.selector.matches(node.labels):
            owner = pool_of(pools, node)
            if owner is not None and owner.metadata.name != key.name:
                overlaps[owner.metadata.name] += 1
            else:
                nodes.append(node)
    pods = [pod for node in nodes for pod in _pods_on(reader, node.name, key.name)]
    on_demand: list[Node] = []
    fallback_overlaps: Counter[str] = Counter()
    for node in _fallback_nodes(reader, pool, {node.name for node in nodes}):
        there = list(_pods_on(reader, node.name, key.name))
        pods += there
        if (owner := pool_of(pools, node)) is not None:
            fallback_overlaps[owner.metadata.name] += 1
        elif there:
            on_demand.append(node)
    account = reader.memory(pool.metadata.uid)
    names = {node.name for node in nodes}
    problems = reader.hub.notice_problems()
    return Observed(
        pool=pool,
        nodes=tuple(nodes),
        on_demand=tuple(on_demand),
        other_payers=_payers(one for one in pools if one.metadata.name != key.name),
        existing=frozenset(node.uid for node in reader.nodes()),
        pods=tuple(pods),
        notices=tuple(one for found in reader.hub.notices().values() for one in found),
        unread={node.name: problems[node.name] for node in nodes if node.ready and node.name in problems},
        claims=tuple(_claims(reader, key.name, names)),
        trace=reader.price_trace(key.name),
        overlaps=overlaps,
        fallback_overlaps=fallback_overlaps,
        account=account if isinstance(account, Account) else None,
    )


def _fallback_nodes(reader: Reader, pool: SpotPool, spot: set[str]) -> Iterator[Node]:
    """Yield the nodes that the pool's fall-back selects."""
    if pool.spec.fallback is not None:
        selector = pool.spec.fallback.on_demand_selector
        for node in reader.nodes():
            if node.name not in spot and selector.matches(node.labels):
                yield node


def _payers(pools: Iterable[SpotPool]) -> Counter[str]:
    """Return the number of pools that pay for each on-demand node, by uid. Like the account, it follows the
    stored status, so pools that plan at the same time divide the cost without a rest.
    """
    return Counter(uid for pool in pools for uid in pool.status.internal.on_demand)


def _pods_on(reader: Reader, node: str, pool: str) -> Iterator[PoolPod]:
    """Yield the pods of a pool that need a node."""
    for pod in reader.members_on(node):
        if pod.view.labels.get(LABEL_SPOT_POOL) == pool:
            yield PoolPod(
                pod.namespace,
                pod.name,
                pod.uid,
                pod.job,
                pod.view.labels.get(LABEL_ROLE, ""),
                node,
                pod.view.created,
                pod.view.deleting,
            )


def _claims(reader: Reader, pool: str, nodes: set[str]) -> Iterator[Claim]:
    """Yield a claim for each role that names the pool and whose job wants pods."""
    for stored in reader.referring(trainingjob.KIND, POOL_FIELD, pool):
        job = reader.get(trainingjob.KIND, stored.name, stored.namespace)
        if job is None or job.spec.suspend or job.status.phase in TERMINAL:
            continue
        group = tuple(sorted(_group_nodes(reader, job) & nodes))
        created: datetime | None = job.metadata.creation_timestamp
        for role in job.spec.roles:
            if role.spot_pool == pool:
                since = created or reader.now()
                yield Claim(stored.namespace, stored.name, role.name, _wanted(job, role), since, group)


def _wanted(job: TrainingJob, role: Role) -> int:
    """Return the number of the role's pods, without those that have completed or were given up."""
    found = next((one.independent for one in job.status.roles if one.name == role.name), None)
    return role.replicas - (found.completed + found.given_up if found is not None else 0)


def _group_nodes(reader: Reader, job: TrainingJob) -> set[str]:
    """Return the nodes of the job's pods that are on no pool's nodes by their own wish."""
    pods = reader.pods(job.metadata.namespace or "", job.metadata.name)
    own = (pod for pod in pods if pod.owner_uid == job.metadata.uid and LABEL_SPOT_POOL not in pod.labels)
    return {pod.node for pod in own if pod.node}
