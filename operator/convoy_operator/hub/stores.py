"""Handles CheckpointStores: reads their Secrets, sends them to the agents that need them, and lets one
agent at a time probe each store.

Credentials exist only in the messages to agents. No part of a message is logged or shown, and plans never
see credentials. A report counts only if it comes from the agent that was ordered to probe, and only for the
store's current version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog
from pydantic import ValidationError

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import CachedObject
from convoy_controllers.checkpointstore.observed import Observed, Probe, Secret
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.resources import CHECKPOINT_STORES, SECRETS
from convoy_controllers.trainingjob.controller import ended
from convoy_controllers.views import ENDED_PHASES
from convoy_crds import storekeys
from convoy_crds.checkpointstore import KIND as CHECKPOINT_STORE
from convoy_crds.checkpointstore import CheckpointStore, CheckpointStoreSpec
from convoy_operator import errors
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.gateway import ApiGateway
from convoy_operator.hub import credentials
from convoy_operator.hub.pins import Pins
from convoy_operator.queue import WorkQueue
from convoy_operator.views import texts_at

log = structlog.get_logger(__name__)

Send = Callable[[wire.HubMessage], None]

ANSWER_SECONDS = 90.0
"""Seconds to wait for an agent's report on a probe. The time is long because the agent itself retries a
store that does not respond.
"""
FRESH_SECONDS = 30.0
"""Seconds after a change of a store during which the probe result from before the change still counts."""
MIN_SECONDS, MAX_SECONDS = 5.0, 300.0
"""Minimum and maximum back-off in seconds between probes of a store that cannot be reached."""
AGAIN_SECONDS = 3600.0
"""Seconds between two probes of a store that could be reached."""
_MESSAGE = 1024
STORE_FIELDS = tuple(
    (one.kind.name, watch.index)
    for one in CONTROLLERS
    for watch in one.watches
    if one.kind is not None and watch.resource == CHECKPOINT_STORES and watch.index
)
"""Kinds of jobs, each with a field that names a store."""


@dataclass(slots=True, eq=False)
class _AgentStream:
    """The stream of one node's agent, and the stores that were sent on it."""

    send: Send = field(repr=False)
    sent: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """For each store, by name: the version, the conditional-writes flag and the pinned generations that were
    sent last.
    """


@dataclass(slots=True)
class _StoreRecord:
    """The hub's state of one store."""

    spec: CheckpointStoreSpec
    secret: Secret
    message: wire.Store | None = field(default=None, repr=False)
    """The message for agents; None if the Secret is missing or incomplete."""
    since: float = 0.0
    """Monotonic time in seconds of the store's last change."""
    probe: Probe | None = None
    conditional: bool = False
    """True if the last successful probe found that the store supports conditional writes."""
    probing_node: str = ""
    """Node whose agent is probing and must report before `due`; empty if no agent is probing."""
    last_probing_node: str = ""
    """Node whose agent was the last to probe."""
    due: float = 0.0
    """Monotonic time in seconds before which no new probe starts."""
    failures: int = 0
    """Number of failed probes since the last success."""

    @property
    def version(self) -> str:
        """Return the version of `message`; empty if there is no message."""
        return self.message.version if self.message is not None else ""


class CheckpointStores:
    """The hub's state of all CheckpointStores. All methods must be called from the event loop."""

    def __init__(
        self,
        cache: ClusterCache,
        queue: WorkQueue[Key],
        gateway: ApiGateway,
        namespace: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`namespace` is the operator's namespace, which contains the Secrets."""
        self._cache = cache
        self._queue = queue
        self._gateway = gateway
        self._namespace = namespace
        self._clock = clock
        self._wall = wall
        self._known: dict[str, _StoreRecord] = {}
        self._streams: dict[str, _AgentStream] = {}
        self._pins_changed: set[str] = set()
        """Stores whose pinned generations may have changed since the last poll."""
        self._pins = Pins(cache, self._pins_changed.add)
        cache.objects(CHECKPOINT_STORE).listen(self._on_removed)

    # Methods that reconciles call

    async def resolve(self, parent: CachedObject) -> None:
        """Read the Secret of a store. If the store changed, send it to the agents that have an older
        version, and to the agents that need the store.
        """
        try:
            store = CheckpointStore.model_validate(parent.raw)
        except ValidationError:
            self._known.pop(parent.name, None)
            return
        secret, message = await self._read(store)
        current = self._cache.objects(CHECKPOINT_STORE).get("", parent.name)
        if current is None or current.uid != parent.uid:
            return
        known = self._known.get(parent.name)
        if known is None or known.version != (message.version if message is not None else ""):
            known = _StoreRecord(store.spec, secret, message, since=self._clock())
            self._known[parent.name] = known
            log.info("store or its Secret changed", store=parent.name, whole=message is not None)
        known.spec, known.secret = store.spec, secret
        self._distribute(parent.name, known)
        self._probe_if_due(parent.name, known)

    def observed(self, store: CheckpointStore) -> Observed | None:
        """Return the hub's findings about a store in the form that its plan uses. Return None before
        `resolve`.
        """
        known = self._known.get(store.metadata.name)
        if known is None:
            return None
        fresh = self._clock() < known.since + FRESH_SECONDS
        return Observed(store, self._namespace, known.secret, known.probe, known.probing_node, fresh)

    async def _read(self, store: CheckpointStore) -> tuple[Secret, wire.Store | None]:
        s3 = store.spec.s3
        if s3 is None:
            return Secret(), credentials.message(store, {})
        try:
            raw = await self._gateway.get(SECRETS, self._namespace, s3.credentials_secret)
        except errors.NotFound:
            return Secret(unreadable="it does not exist; create it"), None
        except errors.Forbidden:
            why = "the operator may not read it; list it in the chart's operator.storeSecrets"
            return Secret(unreadable=why), None
        data = storekeys.decoded(raw)
        if lacking := storekeys.missing(data):
            return Secret(missing=lacking), None
        return Secret(), credentials.message(store, data)

    # Methods that agents' streams call

    def join(self, node: str, send: Send) -> None:
        """Record the new stream of a node's agent. Send the stores of all jobs on the node."""
        self.leave(node)
        self._streams[node] = _AgentStream(send)
        for name in self._used_on(node):
            if known := self._known.get(name):
                self._send(node, name, known)
        for name, known in self._known.items():
            if known.probe is not None and known.probe.unmounted and not known.probing_node:
                # Probe again at once. The last agent that probed had not mounted the volume's
                # PersistentVolumeClaim. Agents mount claims only when they start, so this agent may have
                # mounted it.
                known.due, known.failures, known.last_probing_node = 0.0, 0, node
                self._probe_if_due(name, known)

    def leave(self, node: str) -> None:
        """Record that the stream of a node's agent ended. If the agent was probing, its probe counts as
        failed.
        """
        if self._streams.pop(node, None) is None:
            return
        for name, known in self._known.items():
            if known.probing_node == node:
                self._record_failure(name, known)

    def ensure(self, node: str, name: str) -> None:
        """Send a store to a node's agent unless the agent has it. This must come before an assignment that
        uses the store.
        """
        known = self._known.get(name)
        if node in self._streams and known is not None:
            self._send(node, name, known)

    def report(self, node: str, report: wire.StoreReport) -> None:
        """Record an agent's report on a probe."""
        known = self._known.get(report.name)
        if known is None or not node or known.probing_node != node or known.version != report.version:
            log.info("ignored a store report of an agent that was not asked", node=node)
            return
        known.probe = Probe(
            node=node,
            at=datetime.fromtimestamp(self._wall(), UTC),
            reached=report.reached,
            conditional=report.reached and report.conditional,
            checksums=report.reached and report.checksums,
            unmounted=not report.reached and report.unmounted,
            message=report.message[:_MESSAGE],
        )
        log.info("store was probed", store=report.name, node=node, reached=report.reached)
        if not report.reached:
            self._record_failure(report.name, known)
            return
        known.probing_node, known.failures, known.due = "", 0, self._clock() + AGAIN_SECONDS
        # Update the flag only after a successful probe: an outage shows nothing about the store's features.
        known.conditional = report.conditional
        self._distribute(report.name, known)
        self._wake(report.name)

    # Periodic probes

    def poll(self) -> None:
        """Start a probe of each store whose next probe is due. A probe whose report is overdue counts as
        failed. Send the agents each store whose pinned generations have changed.
        """
        while self._pins_changed:
            name = self._pins_changed.pop()
            if name in self._known:
                self._distribute(name, self._known[name])
        for name, known in self._known.items():
            self._probe_if_due(name, known)

    def _probe_if_due(self, name: str, known: _StoreRecord) -> None:
        if known.message is None or self._clock() < known.due:
            return
        if known.probing_node:
            log.info(
                "agent did not report its probe of a store in time, will retry",
                store=name,
                node=known.probing_node,
            )
            self._record_failure(name, known)
            return
        node = self._next_prober(name, known)
        if not node:
            return
        known.probing_node = known.last_probing_node = node
        known.due = self._clock() + ANSWER_SECONDS
        self._send(node, name, known, probe=True)

    def _next_prober(self, name: str, known: _StoreRecord) -> str:
        """Return the node whose agent probes next; empty if no agent is connected. After a successful probe
        it is the same node, otherwise the next node in alphabetical order.

        A node should get the keys of a bucket only if it has a job that uses the store. Other nodes are
        chosen only if no node has such a job, or if the probes of all nodes with such a job failed. A
        volume has no keys, so any node may probe it.
        """
        nodes = sorted(self._streams)
        if known.spec.s3 is not None:
            users = sorted(self._users(name, known.spec) & self._streams.keys())
            nodes = users if known.failures < len(users) else nodes
        if known.last_probing_node in nodes and not known.failures:
            return known.last_probing_node
        return next((node for node in nodes if node > known.last_probing_node), nodes[0] if nodes else "")

    def _record_failure(self, name: str, known: _StoreRecord) -> None:
        known.probing_node = ""
        known.due = self._clock() + min(MAX_SECONDS, MIN_SECONDS * 2.0 ** min(known.failures, 16))
        known.failures += 1
        self._wake(name)

    # Sending of stores to agents

    def _distribute(self, name: str, known: _StoreRecord) -> None:
        """Send a store to all agents that have an earlier version, and to the agents on nodes with a job
        that uses the store.
        """
        if known.message is None:
            return
        users = self._users(name, known.spec)
        for node, stream in self._streams.items():
            if node in users or name in stream.sent:
                self._send(node, name, known)

    def _send(self, node: str, name: str, known: _StoreRecord, *, probe: bool = False) -> None:
        stream, pinned = self._streams[node], self._pins.on(node, name)
        news = (known.version, known.conditional, *(one.SerializeToString() for one in pinned))
        if known.message is None or (stream.sent.get(name) == news and not probe):
            return
        stream.sent[name] = news
        message = wire.Store()
        message.CopyFrom(known.message)
        message.conditional, message.probe = known.conditional, probe
        message.pinned.extend(pinned)
        stream.send(wire.HubMessage(store=message))

    def _users(self, name: str, spec: CheckpointStoreSpec) -> set[str]:
        """Return the nodes that need a store: those with pods of a job that uses the store. Finished jobs
        are ignored, and so are jobs in a namespace that may not use the store.
        """
        return {
            pod.view.node
            for kind, field_path in STORE_FIELDS
            for job in self._cache.kinds[kind].by_index(field_path, name)
            if spec.allows(job.namespace) and not ended(job)
            for pod in self._cache.own_pods(Key(kind, job.namespace, job.name))
            if pod.view.node
        }

    def _used_on(self, node: str) -> Iterable[str]:
        """Yield the names of the stores that jobs with unfinished pods on the node use. A store that the
        job's namespace may not use is left out.
        """
        pods = (pod for pod in self._cache.members_on(node) if pod.view.phase not in ENDED_PHASES)
        for key in sorted({key for pod in pods if (key := self._cache.job_key(pod)) is not None}):
            job = self._cache.job_of(key)
            if job is None:
                continue
            paths = [path for kind, path in STORE_FIELDS if kind == key.kind]
            for name in sorted({name for path in paths for name in texts_at(path, job)}):
                known = self._known.get(name)
                if known is not None and known.spec.allows(key.namespace):
                    yield name

    def _wake(self, name: str) -> None:
        self._queue.add(Key(CHECKPOINT_STORE.name, "", name))

    def _on_removed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._known.pop(before.name, None)
