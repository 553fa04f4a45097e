"""What the hub hears from every node's agent and tells it: its stream, its pods, where its peers find it.

A report is believed only for a pod that the API server says runs on the reporting node. That is asked when
the report is used, not when it comes: a report may be faster than the watch.

An agent that comes back may answer its peers elsewhere. Every report says where its pod's commits are asked
for; when that is not where the agent of that node is, the reporter is told, again with later reports until it
says so itself. Nothing of it is kept: a new leader learns both sides from the Hellos.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import structlog

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import Node, Parent
from convoy_controllers.checkpointstore.observed import Observed as ObservedStore
from convoy_controllers.commands import Assign, Command, Shutdown
from convoy_controllers.keys import Key
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.views import GuardView, NodeView, PodView, SlotView
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_operator import views
from convoy_operator.gateway import ApiGateway
from convoy_operator.hub import messages
from convoy_operator.hub.clearing import Clearing
from convoy_operator.hub.known import MOST_PODS, UNITS_AT_ONCE, UNITS_PER_SECOND, Known
from convoy_operator.hub.presence import Presence
from convoy_operator.hub.stores import Stores
from convoy_operator.hub.streams import Stream
from convoy_operator.hub.sweeps import Sweeps
from convoy_operator.hub.warranting import WarrantOffice
from convoy_operator.hub.watching import Watches
from convoy_operator.hub.witness import Connect, answers
from convoy_operator.limits import TokenBucket
from convoy_operator.metrics import Metrics
from convoy_operator.queue import WorkQueue
from convoy_operator.settings import Settings
from convoy_operator.world import World

log = structlog.get_logger(__name__)


class Agents:
    """All agents. Used from the event loop alone."""

    def __init__(
        self,
        world: World,
        queue: WorkQueue[Key],
        metrics: Metrics,
        settings: Settings,
        gateway: ApiGateway,
        *,
        progress_delay: Callable[[Key], float],
        connect: Connect = answers,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._world = world
        self._queue = queue
        self._metrics = metrics
        self._debounce = settings.debounce_seconds
        self._progress_delay = progress_delay
        self._clock = clock
        self._wall = wall
        self._agents: dict[str, Known] = {}
        self._moved: set[str] = set()
        """Nodes whose agents' addresses have changed, or become known, since the last look."""
        self._clearing = Clearing(world, lambda node, uid: self.tell(node, messages.forget(uid)))
        self._relocated: set[str] = set()
        """Those of them whose agents had another address before."""
        self.presence = Presence(
            world,
            queue,
            metrics,
            settings,
            gateway,
            agent_address=self.peer_address,
            connect=connect,
            clock=clock,
            wall=wall,
        )
        self.stores = Stores(world, queue, gateway, settings.namespace, clock=clock, wall=wall)
        self.office = WarrantOffice()
        self.watches = Watches(world, queue, metrics)
        self.sweeps = Sweeps(self.tell, self.peer_address, clock=clock)
        world.nodes.listen(self._node)

    # What streams tell.

    def expects(self, node: str) -> bool:
        """Whether a node exists, as far as the watch has told: the certificate of one that is gone may not
        have run out. Whoever is faster than the watch dials again.
        """
        return self._world.nodes.get("", node) is not None

    def join(self, hello: wire.Hello) -> Stream:
        """An agent has dialled; an older stream of its node ends."""
        node = hello.node
        agent = self._known(node)
        if agent.stream is not None:
            agent.stream.superseded.set()
        before = agent.peer_address
        stream = Stream(node)
        agent.joined(stream, hello)
        # Before anything else: an agent that restarted has none of its jobs' credentials any more.
        self.stores.join(node, partial(self._put, stream))
        if agent.peer_address != before:
            if before:
                self._relocated.add(node)
            self._moved.add(node)
        self.holdings(node, hello.holdings)
        self.sweeps.join(node)
        told = {report.pod_uid: report for report in hello.pods[:MOST_PODS]}
        for uid in [uid for uid in agent.slots if uid not in told]:
            self.gone(node, uid)
        for report in told.values():
            self.report(node, report)
        self.heard(node)
        for uid in told:
            # Commands that it missed while it was away are planned again.
            self._wake(node, uid, 0.0)
        return stream

    def leave(self, stream: Stream) -> None:
        """A stream has ended. Its agent is judged by its silence, not by that."""
        agent = self._agents.get(stream.node)
        if agent is not None and agent.stream is stream:
            agent.stream = None
            self.stores.leave(stream.node)

    def heard(self, node: str) -> None:
        """Anything came from a node's agent."""
        self.presence.heard(node)

    def spend(self, node: str, message: wire.AgentMessage) -> None:
        """A message was read from a node's agent, on whichever stream."""
        self._known(node).spend(message)

    def owes(self, node: str) -> float:
        """Seconds for which nothing more is to be read from a node's agent: who floods the hub is slowed."""
        agent = self._agents.get(node)
        return agent.pace.debt if agent is not None else 0.0

    def beat(self, stream: Stream, heartbeat: wire.Heartbeat) -> None:
        """A heartbeat came, and is answered."""
        self.presence.beat(stream.node, messages.seconds(heartbeat.sent_unix_ms))
        self.presence.vouched(stream.node, ((told.node, told.age_ms / 1000) for told in heartbeat.vouched))
        # With a full outbox the agent reads nothing, and would not read this either.
        with contextlib.suppress(asyncio.QueueFull):
            stream.outbox.put_nowait(messages.pulse(heartbeat))

    def report(self, node: str, report: wire.PodReport) -> None:
        """Takes a pod's report in and wakes its job as soon as the change deserves."""
        agent = self._known(node)
        uid = report.pod_uid
        before = agent.slots.get(uid)
        if not agent.fits(report):
            if not agent.crowded:
                log.warning("more reported than a node has", node=node, pods=len(agent.slots))
            agent.crowded = True
            return
        # Of no incarnation there is no warrant yet.
        warranted = not report.incarnation or self.office.current(report.authority)
        after = messages.slot_view(report, node, warranted=warranted)
        if before is not None:
            stepped = self._wall() if messages.progressed(before, after) else before.stepped
            after = replace(after, stepped=stepped)
        agent.take(report, after)
        self._correct(agent, uid)
        if messages.urgent(before, after):
            self._wake(node, uid, 0.0)
        elif before is None or messages.skeleton(before) != messages.skeleton(after):
            self._wake(node, uid, self._debounce)
        elif before != after:
            self._wake(node, uid, None)

    def gone(self, node: str, uid: str) -> None:
        """A pod's volume was unmounted."""
        agent = self._agents.get(node)
        if agent is not None and agent.slots.pop(uid, None) is not None:
            agent.asks.pop(uid, None)
            self._wake(node, uid, self._debounce)

    def holdings(self, node: str, said: wire.Holdings) -> None:
        """An agent says which jobs' checkpoints lie in its node's memory."""
        self._known(node).hold(said)

    def farewell(self, node: str) -> None:
        """An agent announced that it exits."""
        self.presence.farewell(node)

    # What reconciles ask.

    def slots(self, pods: tuple[PodView, ...]) -> Mapping[str, SlotView]:
        """By pod uid, the reports on these pods by the agents of the nodes they are on."""
        found: dict[str, SlotView] = {}
        for pod in pods:
            agent = self._agents.get(pod.node) if pod.node else None
            view = agent.slots.get(pod.uid) if agent else None
            if view is None:
                continue
            if view.launcher_connected and not self.presence.connected(view.node):
                view = _disconnected(view)
            found[pod.uid] = view
        return found

    def nodes(self, pods: tuple[PodView, ...]) -> Mapping[str, NodeView]:
        """By name, the nodes that these pods are on."""
        return self.presence.nodes(pods)

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Nodes whose memory holds checkpoints of a job, and which have had a slot of it. One that is silent
        for too long has lost them, or is cut off with them: it is not waited for."""
        return tuple(
            sorted(
                node
                for node, agent in self._agents.items()
                if job_uid in agent.holdings
                and not self.presence.silent(node)
                and self._believed(node, agent, job_uid)
            )
        )

    def guard(self, job_uid: str) -> GuardView | None:
        """What the telemetry of a job's ranks shows; None before they have told of a step."""
        return self.watches.view(job_uid)

    def hardware(self, node: str) -> wire.Hardware:
        """What an agent has told of its node's hardware; not `known` before it did."""
        agent = self._agents.get(node)
        return agent.hardware if agent is not None else wire.Hardware()

    def heard_of(self, node: str) -> bool:
        """Whether a node's agent is to be taken for present."""
        return self.presence.connected(node)

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """By node, what jobs hold against it."""
        return self.watches.suspicions()

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """By node, what jobs see of it that may lie in it and need not."""
        return self.watches.noticed()

    def paces(self) -> Mapping[str, JobPace]:
        """By job, how fast it is."""
        return self.watches.paces()

    def store(self, store: CheckpointStore) -> ObservedStore | None:
        """What was found out about a store; None when its Secret was not looked up."""
        return self.stores.observed(store)

    async def resolve(self, store: Parent) -> None:
        """Looks up the Secret of a CheckpointStore."""
        await self.stores.resolve(store)

    def unsettled(self, nodes: set[str]) -> float:
        """Seconds to wait until it is known which of these nodes' agents are there; 0 when it is."""
        return self.presence.unsettled(nodes)

    def send(self, command: Command) -> None:
        """Tells the agent of the command's node, if it is connected and was not told a moment ago."""
        agent = self._agents.get(command.node)
        if agent is None or agent.stream is None:
            self._metrics.commands_dropped.inc()
            log.info("no agent to tell", node=command.node, command=type(command).__name__)
            return
        incarnation = 0 if isinstance(command, Shutdown) else command.incarnation
        if agent.stream.repeats((type(command).__name__, command.pod_uid, str(incarnation)), self._clock()):
            return
        if isinstance(command, Assign) and command.memory and command.memory.store:
            self.stores.ensure(command.node, command.memory.store.name)
        self._put(agent.stream, messages.command(command, self.peer_address, self.office.sign))

    def tell(self, node: str, message: wire.HubMessage) -> bool:
        """Puts a message on its way to a node's agent; whether that is connected."""
        agent = self._agents.get(node)
        if agent is None or agent.stream is None:
            return False
        self._put(agent.stream, message)
        return True

    def peer_address(self, node: str) -> str:
        """Where a node's agent last said that it serves its peers; empty when it never did."""
        agent = self._agents.get(node)
        return agent.peer_address if agent else ""

    def look(self) -> None:
        """Corrects all who ask agents for commits that have moved since the last look."""
        if not self._moved:
            return
        for node in self._relocated:
            self._tell_peers(node)
        self._relocated.clear()
        moved, self._moved = self._moved, set()
        for agent in self._agents.values():
            for uid, asked in agent.asks.items():
                if any(node in moved for node, _ in asked):
                    self._correct(agent, uid)

    async def run(self, seconds: float = 1.0) -> None:
        """Looks again and again until cancelled."""
        while True:
            self.look()
            self.clear()
            self.stores.look()
            await asyncio.sleep(seconds)

    def clear(self) -> None:
        """Has the memory of jobs that are over or gone given back, and that of nodes which jobs have left;
        forgets agents of nodes that are gone."""
        if not self._clearing.due(self._clock()):
            return
        for node in [name for name, agent in self._agents.items() if self._stray(name, agent)]:
            self._drop(node)
        self._clearing.look(self._agents.items())

    def _stray(self, node: str, agent: Known) -> bool:
        """Whether an agent has dialled once more after its node was deleted, and is gone.

        Where nodes come and go, there would be ever more of them.
        """
        return agent.stream is None and self._world.nodes.get("", node) is None

    def _drop(self, node: str) -> None:
        """Nothing is known of a node any more."""
        agent = self._agents.pop(node, None)
        self.stores.leave(node)
        self.sweeps.gone(node)
        self.presence.forget(node)
        if agent is not None and agent.stream is not None:
            agent.stream.superseded.set()

    def _tell_peers(self, moved: str) -> None:
        """Tells the agents of Strict jobs where a node's agent is now: when they are cut off from us, it is
        each other's voices that keep their ranks alive."""
        address = self.peer_address(moved)
        for key in self._world.jobs_on(moved):
            job = self._world.jobs.get(key.namespace, key.name)
            if job is None or not views.strict(job.raw):
                continue
            for pod in self._world.pods.indexed((key.namespace, key.name)):
                agent = self._agents.get(pod.view.node or "")
                if agent is not None and agent.stream is not None and pod.uid in agent.slots:
                    self._put(agent.stream, messages.peer_moved(pod.uid, moved, address))

    def _correct(self, agent: Known, uid: str) -> None:
        """Tells an agent where those are that it asks for a pod's sake, if it has that wrong."""
        stream = agent.stream
        if stream is None:
            return
        for node, known in agent.asks[uid]:
            if stream.superseded.is_set():
                return
            address = self.peer_address(node)
            if not address or address == known:
                continue
            if not stream.repeats(("PeerMoved", uid, node, address), self._clock()):
                log.debug("peer moved", node=stream.node, pod_uid=uid, asked=node, address=address)
                self._put(stream, messages.peer_moved(uid, node, address))

    def _known(self, node: str) -> Known:
        if node not in self._agents:
            bucket = TokenBucket(UNITS_PER_SECOND, UNITS_AT_ONCE, self._clock)
            self._agents[node] = Known(bucket)
        return self._agents[node]

    def _believed(self, node: str, agent: Known, job_uid: str) -> bool:
        """Whether a node had a slot of a job that it holds something of; looked at once for each warrant."""
        warrant = agent.holdings[job_uid]
        known, holds = agent.believed.get(job_uid, ("", False))
        if known != warrant:
            holds = self.office.holds(warrant, job_uid, node)
            agent.believed[job_uid] = (warrant, holds)
        return holds

    def _put(self, stream: Stream, message: wire.HubMessage) -> None:
        try:
            stream.outbox.put_nowait(message)
        except asyncio.QueueFull:
            self._metrics.commands_dropped.inc()
            stream.superseded.set()
            log.warning("agent takes no commands", node=stream.node)

    def _wake(self, node: str, uid: str, delay: float | None) -> None:
        """Has a pod's job looked at within so many seconds; None for its next turn to tell of progress."""
        pod = self._world.pods.by_uid(uid)
        if pod is not None and pod.view.node == node:
            key = Key(TRAINING_JOB.name, pod.namespace, pod.job)
            self._queue.add(key, self._progress_delay(key) if delay is None else delay)

    def _node(self, before: Node | None, after: Node | None, own: bool) -> None:
        if after is None and before is not None:
            self._drop(before.name)


def _disconnected(view: SlotView) -> SlotView:
    """The last report of an agent that fell silent."""
    return replace(view, launcher_connected=False, agent_away=True)
