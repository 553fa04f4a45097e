"""Sends copies of this node's shards to other nodes. These nodes are called the hosts of a pod."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import structlog

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.pods.assignment import Assignment, NodeAddress
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.keyed_lock import KeyedLock
from convoy_agents.tiercheck.peer_transfer import Later, Outdated, PeerTransfer, Unreachable
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.trouble_reporter import TroubleReporter
from convoy_controllers.checkpoint import records, retention
from convoy_controllers.checkpoint.generation import Generation, Tier

log = structlog.get_logger()


class ShardCopier:
    """Sends the shards of this node's pods to their hosts. `plan`: returns the current assignment of a pod
    by its uid.
    """

    def __init__(
        self, peer_transfer: PeerTransfer, troubles: TroubleReporter, plan: Callable[[str], Assignment | None]
    ) -> None:
        self._peer_transfer = peer_transfer
        self._troubles = troubles
        self._plan = plan
        self._sending: KeyedLock[tuple[str, str, str]] = KeyedLock()
        """Locks by job uid, host and shard id."""

    async def copy(self, plan: Assignment, job_memory: JobMemory, keys: Sequence[str]) -> bool:
        """Copy shards to every host of the pod. Return True if every host has all of them.

        Raises Damaged if a shard in this node's memory is damaged.
        """
        hosts = plan.memory.hosts if plan.memory else ()
        releases = job_memory.releases
        started = time.monotonic()
        try:
            done = await asyncio.gather(*(self._send(plan, host, job_memory, keys) for host in hosts))
        except Damaged:
            if job_memory.releases == releases:
                raise
            log.info("copies not made: the job's memory went to another job", job=plan.job)
            return False
        if done and all(done):
            metrics.COPY_SECONDS.observe(time.monotonic() - started)
        return all(done)

    def wanted(self, plan: Assignment) -> bool:
        """Return True if the pod of `plan` makes copies now. The operator may change that at any time."""
        given = (self._plan(plan.pod_uid) or plan).memory
        return given is not None and given.copies > 0

    async def _send(
        self, plan: Assignment, host: NodeAddress, job_memory: JobMemory, keys: Sequence[str]
    ) -> bool:
        """Send shards to one host, with retries until the incarnation ends. Return True if the host has all
        of them.
        """
        pause = Backoff(first=0.05, cap=5.0)
        left, failed = list(keys), ""
        while left:
            now = self._plan(plan.pod_uid)
            if now is None or now.incarnation != plan.incarnation:
                return False
            hosts = now.memory.hosts if now.memory else ()
            if not hosts:
                # The operator has found that copies do not fit, so the job makes none.
                return True
            place = next((one for one in hosts if one.node == host.node), host)
            try:
                await self._send_one(place, job_memory, now, left[0])
            except (Later, Unreachable) as error:
                log.info("shard not copied; retrying", job=plan.job, node=host.node, why=str(error))
                self._troubles.not_copied(plan, host.node, left[0], str(error))
            except Outdated as error:
                log.info("copy refused: it is outdated", job=plan.job, why=str(error))
                return False
            except Damaged:
                raise
            except Exception as error:
                # This node has a fault: for example, it cannot start a thread. Retry here, because nothing
                # else retries this copy.
                why = str(error) or type(error).__name__
                if why != failed:
                    log.error("shard not copied; retrying", job=plan.job, node=host.node, exc_info=error)
                failed = why
                message = f"{host.node}: cannot send: {why}"
                self._troubles.not_copied(plan, host.node, left[0], message)
            else:
                left.pop(0)
                pause.reset()
                continue
            await asyncio.sleep(pause.next())
        self._troubles.copied(plan, host.node)
        return True

    async def _send_one(self, place: NodeAddress, job_memory: JobMemory, plan: Assignment, key: str) -> None:
        """Send one shard to a host. Several journal segments may extend the same shard. The lock ensures
        that this shard is sent only once.
        """
        async with self._sending.hold((job_memory.job_uid, place.node, key)):
            await self._peer_transfer.send(place, job_memory, plan, key)


def pod_shards(plan: Assignment, shards: Sequence[str]) -> list[str]:
    """Return the names of the restored shards that this pod keeps and copies. `shards`: the names of all
    shards of the restored generation, ordered by rank.

    The job may have had another number of ranks when it saved the generation. So its shards are distributed
    over the present ranks.
    """
    return [shard for number, shard in enumerate(shards) if number % plan.world_size in plan.ranks]


def with_extended(store: ShardStore, heads: Iterable[str]) -> list[str]:
    """Return the ids of the shards in `heads` and of all shards that they extend, newest first.

    The order matters for sending. A host accepts an old shard only if it already has a segment that extends
    this shard.
    """
    known = store.manifests

    def newest_first(key: str) -> tuple[bool, Generation, str]:
        return key in known, known[key].generation if key in known else Generation(0, 0), key

    return sorted(retention.reachable(list(heads), known), key=newest_first, reverse=True)


def restored_shards(store: ShardStore, plan: Assignment) -> list[str] | None:
    """Return the ids of the shards that this pod must copy after a restore. These are the pod's shards of
    the restored generation and all shards that they extend.

    Return None if the incarnation started without a checkpoint, if a generation of this incarnation has
    copies already, or if one of the shards is not on this node yet.
    """
    branch, peer = store.branches.get(plan.incarnation), store.marks.get(Tier.PEER)
    started = branch.parent if branch else None
    record = store.records.get(started) if started else None
    copied = peer is not None and peer.incarnation == plan.incarnation
    if record is None or copied or store.incarnation != plan.incarnation:
        return None
    shards = pod_shards(plan, sorted(record.shards, key=records.by_number))
    keys = with_extended(store, [record.shards[shard] for shard in shards])
    return keys if store.manifests.keys() >= set(keys) else None
