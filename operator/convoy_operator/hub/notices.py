"""Records the notices of agents for SpotPools, and sends each agent the orders of its node's pool.

All state is only in memory. On each new stream an agent repeats all notices that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog
from pydantic import ValidationError

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import CachedObject, Node
from convoy_controllers.spotpool.members import pool_of
from convoy_controllers.spotpool.notice import UNJOINED, Notice
from convoy_crds.spotpool import KIND, Metadata, SpotPool
from convoy_crds.spotpool_status import NoticeKind, NoticeSource, NoticeState
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.messages import MAX_NAME, seconds
from convoy_operator.hub.notice_polls import NoticePolls
from convoy_operator.hub.streams import Stream

log = structlog.get_logger(__name__)

MAX_NOTICES = 1024
"""Maximum number of recorded notices of one agent; further ones are ignored."""
KEEP_SECONDS = 600.0
"""Seconds after its deadline for which a notice counts."""
MAX_AGE_SECONDS = 3600.0
"""Seconds for which a notice about another machine counts. That machine may never join."""
OPEN = (NoticeState.NOTICED.value, NoticeState.DRAINING.value)
"""States of a notice that still holds."""
OF_AGENT = (
    NoticeSource.AWS,
    NoticeSource.GCP,
    NoticeSource.AZURE,
    NoticeSource.FAKE,
    NoticeSource.SIGTERM,
    NoticeSource.RAY,
)
"""Sources that an agent may name. The operator itself reads taints and conditions."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A notice as an agent reported it. `notice.node_name` is what a program named; else it is empty."""

    notice: Notice
    pod_uid: str


class NodeNotices:
    """The notices of all agents. All methods must be called from the event loop."""

    def __init__(self, context: HubContext, registry: AgentRegistry) -> None:
        self._cache = context.cache
        self._wall = context.wall
        self.polls = NoticePolls(context.clock)
        self._registry = registry
        self._recorded: dict[str, tuple[_Recorded, ...]] = {}
        """The notices of each agent, by node of the agent."""
        self._pools: dict[str, tuple[int, SpotPool | None]] = {}
        """The parsed SpotPools with their resource versions, by uid; None for an invalid one."""
        self._sent: dict[str, tuple[Stream, wire.SpotNode]] = {}
        """The orders that each agent has received, and the stream on which they were sent."""
        self.on_news: Callable[[], None] = lambda: None
        """Function to call after the notices have changed."""
        self.on_spot_nodes: Callable[[frozenset[str]], None] = lambda nodes: None
        """Function to call with the names of all nodes of SpotPools, at each poll."""

    def record(self, node: str, message: wire.Notices) -> None:
        """Record the notices of a node's agent. They replace the earlier ones."""
        self.polls.record(node, message)
        boot_id = message.boot_id[:MAX_NAME]
        own = self._cache.nodes.get("", node)
        uid = own.uid if own is not None else ""
        found = tuple(
            one
            for report in message.notices[:MAX_NOTICES]
            if (one := _recorded(report, boot_id, uid)) is not None
        )
        if found == self._recorded.get(node, ()):
            return
        if found:
            log.info("agent reports notices", node=node, sources=sorted({one.notice.source for one in found}))
            self._recorded[node] = found
        else:
            del self._recorded[node]
        self.on_news()

    def drop_node(self, node: str) -> None:
        """Drop the notices of a deleted node's agent."""
        self.polls.drop_node(node)
        self._recorded.pop(node, None)
        self._sent.pop(node, None)

    def notices(self) -> dict[str, tuple[Notice, ...]]:
        """Return the notices that hold at present, by name of the node; see `HubView.notices`."""
        found: dict[str, list[Notice]] = {}
        for reporter, recorded in self._recorded.items():
            for one in recorded:
                if self._expired(one.notice):
                    continue
                for notice in self._placed(reporter, one):
                    found.setdefault(notice.node_name or UNJOINED, []).append(notice)
        return {name: tuple(notices) for name, notices in found.items()}

    def poll(self) -> None:
        """Send each connected agent the orders of its node's SpotPool, if they have changed. Find the nodes
        of SpotPools, and the agents that do not read the metadata service of their pool.
        """
        pools = list(self._current_pools())
        nodes = self._cache.nodes if pools else ()
        owners = {node.name: pool for node in nodes if (pool := pool_of(pools, node)) is not None}
        self.on_spot_nodes(frozenset(owners))
        noticed = dict(_open_notices(self._cache.objects(KIND)))
        for name, record in self._registry.items():
            if record.stream is None or (node := self._cache.nodes.get("", name)) is None:
                continue
            pool = owners.get(name)
            message = wire.SpotNode(metadata=pool.spec.notice.metadata.value if pool else "")
            if (notice := noticed.get(node.uid)) is not None:
                message.notice.CopyFrom(notice)
            if self._sent.get(name) != (record.stream, message):
                self._sent[name] = record.stream, message
                self._registry.put(record.stream, wire.HubMessage(spot_node=message))
        expected = {
            name: pool.spec.notice.metadata.value
            for name, pool in owners.items()
            if pool.spec.notice.metadata is not Metadata.NONE
        }
        self.polls.update(expected, {name for name, one in self._registry.items() if one.stream is not None})

    def _current_pools(self) -> Iterator[SpotPool]:
        stored = list(self._cache.objects(KIND))
        kept: dict[str, tuple[int, SpotPool | None]] = {}
        for one in stored:
            known = self._pools.get(one.uid)
            kept[one.uid] = known if known and known[0] == one.version else (one.version, _parse(one.raw))
        self._pools = kept
        return (pool for _, pool in kept.values() if pool is not None)

    def _expired(self, notice: Notice) -> bool:
        now = self._wall()
        if notice.provider_id and notice.at + MAX_AGE_SECONDS < now:
            return True
        return bool(notice.deadline) and notice.deadline + KEEP_SECONDS < now

    def _placed(self, reporter: str, one: _Recorded) -> Iterator[Notice]:
        """Yield the notice for each node that it concerns, if the agent may report it."""
        own = self._cache.nodes.get("", reporter)
        if own is None:
            return
        if one.notice.source is NoticeSource.RAY:
            yield from self._drained(reporter, one)
        elif one.notice.provider_id:
            # Only machines of the same scale set: their ids differ in the last part alone.
            if _parent(one.notice.provider_id) == _parent(own.provider_id):
                yield replace(one.notice, boot_id="", node_uid="")
        elif one.notice.source is not NoticeSource.SIGTERM or own.shutting_down:
            # An update of the DaemonSet also sends SIGTERM. The kubelet's report tells the two apart.
            yield replace(one.notice, node_name=reporter, provider_id=own.provider_id)

    def _drained(self, reporter: str, one: _Recorded) -> Iterator[Notice]:
        """Yield the notice about each node that a program named, and that runs pods of the same job alone. A
        program must not drain the pods of another job.
        """
        pod = self._cache.pods.by_uid(one.pod_uid)
        key = self._cache.job_key(pod) if pod is not None and pod.view.node == reporter else None
        if key is None:
            return
        for name in sorted(
            {
                other.view.node
                for other in self._cache.own_pods(key)
                if other.view.node and one.notice.node_name in (other.view.node, other.view.ip)
            }
        ):
            node: Node | None = self._cache.nodes.get("", name)
            jobs = {self._cache.job_key(other) for other in self._cache.members_on(name)}
            if node is not None and jobs == {key}:
                yield replace(
                    one.notice,
                    node_name=name,
                    node_uid=node.uid,
                    boot_id=node.boot_id,
                    provider_id=node.provider_id,
                )


def _recorded(report: wire.Notice, boot_id: str, node_uid: str) -> _Recorded | None:
    """Return a report in the form that plans use; None if it is invalid."""
    source = next((one for one in OF_AGENT if one.value == report.source), None)
    kind = next((one for one in NoticeKind if one.value == report.kind), None)
    other = bool(report.provider_id)
    program = source is NoticeSource.RAY
    if source is None or kind is None or (other and source is not NoticeSource.AZURE):
        return None
    if program != bool(report.pod_uid and report.node):
        return None
    notice = Notice(
        source,
        node_name=report.node[:MAX_NAME],
        node_uid=node_uid,
        boot_id=boot_id,
        provider_id=report.provider_id[: 4 * MAX_NAME],
        kind=kind,
        at=seconds(report.at_unix_ms),
        deadline=seconds(report.deadline_unix_ms),
    )
    return _Recorded(notice, report.pod_uid[:MAX_NAME])


def _parent(provider_id: str) -> str:
    return provider_id.rpartition("/")[0].lower()


def _parse(raw: Mapping[str, Any]) -> SpotPool | None:
    try:
        return SpotPool.model_validate(raw)
    except ValidationError:
        return None


def _open_notices(pools: Any) -> Iterator[tuple[str, wire.NodeNotice]]:
    """Yield the notices that hold according to the status of all pools, with the uid of their node."""
    pool: CachedObject
    for pool in pools:
        for one in pool.status.get("notices") or ():
            if one.get("state", NoticeState.NOTICED.value) in OPEN:
                yield (
                    str(one.get("nodeUid")),
                    wire.NodeNotice(
                        kind=one.get("kind", NoticeKind.PREEMPTION.value),
                        sources=one.get("sources") or (),
                        at_unix_ms=_unix_ms(one.get("at")),
                        deadline_unix_ms=_unix_ms(one.get("deadline")),
                    ),
                )


def _unix_ms(time_text: str | None) -> int:
    return int(datetime.fromisoformat(time_text).timestamp() * 1000) if time_text else 0
