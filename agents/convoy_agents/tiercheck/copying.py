"""Copies of shards on other nodes."""

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
    """Copies the shards of one node's pods to their hosts. `plan`: returns a pod's current assignment."""

    def __init__(
        self, peer_transfer: PeerTransfer, troubles: TroubleReporter, plan: Callable[[str], Assignment | None]
    ) -> None:
        self._peer_transfer = peer_transfer
        self._troubles = troubles
        self._plan = plan
        self._sending: KeyedLock[tuple[str, str, str]] = KeyedLock()
        """Locks by job, host and shard."""

    async def copy(self, plan: Assignment, job_memory: JobMemory, keys: Sequence[str]) -> bool:
        """Copy shards to every host of the pod. Return True if all hosts have all of them. Damaged if a
        shard is damaged here.
        """
        hosts = plan.memory.hosts if plan.memory else ()
        started = time.monotonic()
        done = await asyncio.gather(*(self._send(plan, host, job_memory, keys) for host in hosts))
        if done and all(done):
            metrics.COPY_SECONDS.observe(time.monotonic() - started)
        return all(done)

    async def _send(
        self, plan: Assignment, host: NodeAddress, job_memory: JobMemory, keys: Sequence[str]
    ) -> bool:
        """Send shards to one host, with retries while the incarnation lasts."""
        pause = Backoff(first=0.05, cap=5.0)
        left, failed = list(keys), ""
        while left:
            now = self._plan(plan.pod_uid)
            if now is None or now.incarnation != plan.incarnation:
                return False
            hosts = now.memory.hosts if now.memory else ()
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
                # A fault of this node, such as too many threads. Retry here, since nobody else will make this
                # copy.
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
        """Send one shard, one sender at a time: a base that several segments extend is sent once."""
        async with self._sending.hold((job_memory.job_uid, place.node, key)):
            await self._peer_transfer.send(place, job_memory, plan, key)


def pod_shards(plan: Assignment, shards: Sequence[str]) -> list[str]:
    """Return those of a generation's shards, ordered by rank, that this pod keeps after a restore. The
    generation may have been saved by another number of ranks.
    """
    return [shard for number, shard in enumerate(shards) if number % plan.world_size in plan.ranks]


def with_extended(store: ShardStore, heads: Iterable[str]) -> list[str]:
    """Return these shards and all that they extend, newest first: a host accepts an old shard only if a
    segment there extends it.
    """
    known = store.manifests

    def newest_first(key: str) -> tuple[bool, Generation, str]:
        return key in known, known[key].generation if key in known else Generation(0, 0), key

    return sorted(retention.reachable(list(heads), known), key=newest_first, reverse=True)


def restored_shards(store: ShardStore, plan: Assignment) -> list[str] | None:
    """Return the shards to copy of the generation that the incarnation started from: this pod's shards and
    all that they extend. None if there is no such generation, if a later one has copies, or if a shard
    is not here yet.
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
