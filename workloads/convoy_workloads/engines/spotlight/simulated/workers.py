"""The simulated workers. They pull leases from the job's ledger and compute real samples in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from convoy_crds.spot_prices import PriceSchedule
from convoy_workloads.engines.spotlight.learning.grpo import UpdateReport
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.params import Algorithm, Cluster, Systems
from convoy_workloads.engines.spotlight.simulated.availability import NodeLife, lives, trace_of
from convoy_workloads.engines.spotlight.simulated.compute import Compute
from convoy_workloads.engines.spotlight.simulated.events import Clock, Event, EventKind
from convoy_workloads.engines.spotlight.simulated.group import Costs, Group
from convoy_workloads.engines.spotlight.simulated.layout import MANY, Layout
from convoy_workloads.engines.spotlight.workers import Finished, payload_of
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel, NodeLedger
from convoy_workloads.spot.ledger.request import Commit, Lease, Request, RequestKind, RequestState, Result
from convoy_workloads.spot.ledger.requests import RequestLedger

SURRENDER_SECONDS = 2.0
"""Time before the end of a node in which it takes no work, after a notice."""
_LABELS = {RequestKind.ROLLOUT: NodeLabel.ROLLOUT, RequestKind.EXPLORE: NodeLabel.EXPLORE}


@dataclass(frozen=True, slots=True)
class SimulatedTraining:
    """An update whose gradient step is real and whose time is virtual."""

    predicted_end: float
    found: UpdateReport
    clock: Clock

    def report(self) -> UpdateReport | None:
        """Return the figures of the update; None while it runs."""
        return self.found if self.clock.now >= self.predicted_end else None


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of the simulated workers."""

    params: Algorithm
    cluster: Cluster
    systems: Systems
    seed: int


class SimulatedWorkers:
    """On-demand accelerators, and spot nodes that come and go."""

    def __init__(self, setting: Setting, ledger: RequestLedger, compute: Compute) -> None:
        cluster = setting.cluster
        self._setting = setting
        self._ledger = ledger
        self._compute = compute
        self._clock = Clock()
        self._costs = Costs.of(setting.params, cluster, setting.systems)
        prices = PriceSchedule.constant(cluster.spot_price, cluster.on_demand_price)
        self.nodes = NodeLedger({Capacity.SPOT: prices})
        self.layout = Layout(setting.params, setting.systems, self._costs, self._clock, self.nodes)
        self.trace = trace_of(cluster, setting.seed)
        self._lives: Iterator[NodeLife] = iter(())
        self._begun = 0
        """Number of nodes that have started."""
        self._life: dict[str, NodeLife] = {}
        """Nodes that run, and the next one."""
        self._next: NodeLife | None = None
        self._training: SimulatedTraining | None = None
        self._finished: list[Finished] = []
        self._trainers = self._trainer_groups()
        self._restart_lives(0)

    # Interface of the workers

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock.now

    def publish(self, version: int, policy: Policy) -> None:
        """Make weights available. Idle groups copy them at once."""
        self._compute.publish(version, policy)
        self.layout.version = version
        for group in self.layout.idle():
            self.layout.pull(group)

    def submit(self, requests: Sequence[Request]) -> None:
        """Plan requests, and give them to idle workers."""
        if not requests:
            return
        self._ledger.plan(requests)
        self._compute.expect(requests)
        if requests[0].kind is RequestKind.ROLLOUT:
            self.layout.pending = len(requests)
            self.layout.arrange()
            self._deal(len(requests))
        self._dispatch()

    def cancel(self, ids: Iterable[str]) -> None:
        """End requests. Their workers become idle."""
        ended = set(ids)
        self._ledger.supersede(ended)
        for group in self._all_groups():
            if group.lease is not None and group.lease.request.id in ended:
                self._drop(group)

    def train(self, update: Callable[[], UpdateReport], samples: int) -> SimulatedTraining:
        """Train now, and let the time for it pass later."""
        cluster = self._setting.cluster
        end = self._clock.now + samples * cluster.train_seconds / cluster.on_demand
        self._training = SimulatedTraining(end, update(), self._clock)
        self._clock.add(end, EventKind.TRAINED)
        self.layout.pending = MANY
        self.layout.arrange()
        return self._training

    def poll(self, until: float) -> list[Finished]:
        """Let time pass until a request or the update has ended, at most until a time."""
        while not self._finished:
            timeout = self._ledger.next_timeout() or math.inf
            at = min(timeout, self._clock.next_time)
            if at > until:
                self._clock.now = max(self._clock.now, until)
                break
            if timeout < self._clock.next_time:
                self._clock.now = max(self._clock.now, timeout)
                self._deal(len(self._ledger.time_out(self._clock.now)))
                self._dispatch()
                continue
            event = self._clock.pop()
            self._handle(event)
            if event.kind is EventKind.TRAINED:
                break
        found, self._finished = self._finished, []
        return found

    def groups(self) -> int:
        """Return the number of groups of spot nodes."""
        return len(self.layout.groups)

    def cost(self) -> float:
        """Return the cost of all nodes so far."""
        cluster = self._setting.cluster
        hours = self._clock.now / 3600
        spot = sum(self.nodes.billed(self._clock.now).values())
        return cluster.on_demand * cluster.on_demand_price * hours + spot

    # Events

    def _handle(self, event: Event) -> None:
        match event.kind:
            case EventKind.START:
                self._start_node()
            case EventKind.BOOTED:
                self.layout.booted(event.name)
            case EventKind.NOTICE:
                self._notice(event.name)
            case EventKind.END:
                self._end_node(event.name)
            case EventKind.FREE:
                self._free(event)
            case EventKind.FINISHED:
                self._finish(event)
            case EventKind.RENEW:
                self._renew(event)
            case EventKind.DEAL:
                self._deal(event.token)
            case EventKind.TRAINED:
                self._training = None
        self._dispatch()

    def _start_node(self) -> None:
        life = self._next
        assert life is not None  # noqa: S101 - the event belongs to it
        self._life[life.name] = life
        self.layout.start(life)
        if life.notice < life.end:
            self._clock.add(life.notice, EventKind.NOTICE, life.name)
        self._clock.add(life.end, EventKind.END, life.name)
        self._begun += 1
        self._await_next()

    def _notice(self, name: str) -> None:
        """Learn the end of a node. Work that would last longer goes to another worker at once."""
        node = self.layout.nodes[name]
        if not self._setting.systems.commits:
            return
        node.end = self._life[name].end
        group = self.layout.groups.get(node.group)
        if group is None or group.lease is None:
            return
        left = self._costs.seconds(group.degree, self._costs.steps_until(group, self._clock.now))
        if self._clock.now + left > node.end - SURRENDER_SECONDS:
            self._ledger.surrender(group.lease, self._progress(group))
            self._drop(group)
            self._deal(1)

    def _end_node(self, name: str) -> None:
        """End a node. Nobody learns that its lease is lost before it times out."""
        del self._life[name]
        group = self.layout.groups.get(self.layout.nodes[name].group)
        lost = group is not None and group.lease is not None
        if group is not None and group.lease is not None and (saved := self._progress(group)) is not None:
            at = group.began + (saved.step - group.first_step) * self._costs.step_seconds[group.degree]
            self._ledger.commit(group.lease, saved, at)
            self.layout.settle(group, at)
        if group is not None and group.share:
            seconds = self._setting.params.lease_seconds
            self._clock.add(self._clock.now + seconds, EventKind.DEAL, token=group.share)
        self.layout.end(name, lost)

    def _progress(self, group: Group) -> Commit | None:
        """Return the saved progress of a group's request; None if nothing is saved. Its points are not kept,
        because the sample can be computed again.
        """
        assert group.lease is not None  # noqa: S101 - callers have checked it
        steps = self._costs.steps_until(group, self._clock.now)
        if not self._setting.systems.commits or not steps:
            return None
        return Commit(group.lease.request.version, steps, {})

    def _free(self, event: Event) -> None:
        group = self.layout.groups.get(event.name)
        if group is not None and group.token == event.token:
            self.layout.freed(group)
            self.layout.pull(group)

    def _finish(self, event: Event) -> None:
        group = self._group(event)
        if group is None or group.lease is None:
            return
        lease = group.lease
        self._drop(group)
        found = self._compute.sample(lease.request)
        if self._ledger.done(lease, Result(lease.request.version, payload_of(found))):
            self._finished.append(Finished(lease.request, found.reward))

    def _renew(self, event: Event) -> None:
        group = self._group(event)
        if group is not None and group.lease is not None and self._ledger.renew(group.lease, self._clock.now):
            self._clock.add(self._renewal, EventKind.RENEW, group.name, group.token)

    # Work

    def _dispatch(self) -> None:
        """Give work to every idle group."""
        if self._training is None:
            for group in self._trainers.values():
                if not group.busy:
                    self._lease(group, [RequestKind.ROLLOUT, RequestKind.EXPLORE])
        for group in self.layout.idle():
            if not self.layout.pull(group):
                self._lease(group, self._kinds(group))

    def _kinds(self, group: Group) -> list[RequestKind]:
        """Return the kinds of requests that a group of spot nodes can finish in time."""
        end = self._clock.now + self._costs.seconds(group.degree)
        if end > self.layout.known_end(group) - SURRENDER_SECONDS:
            return []
        if self._training is not None and end > self._training.predicted_end:
            return [RequestKind.ROLLOUT]
        return [RequestKind.ROLLOUT, RequestKind.EXPLORE]

    def _lease(self, group: Group, kinds: Sequence[RequestKind]) -> None:
        if not self._setting.systems.pull and group.share == 0:
            kinds = [one for one in kinds if one is not RequestKind.ROLLOUT]
        lease = self._ledger.lease(group.name, self._clock.now, kinds) if kinds else None
        if lease is None:
            return
        group.share -= group.share > 0 and lease.request.kind is RequestKind.ROLLOUT
        self._start_work(group, lease)

    def _start_work(self, group: Group, lease: Lease) -> None:
        group.token += 1
        group.busy, group.lease, group.began = True, lease, self._clock.now
        group.first_step = lease.commit.step if lease.commit is not None else 0
        self.layout.label(group, _LABELS[lease.request.kind])
        seconds = self._costs.seconds(group.degree, group.first_step)
        self._clock.add(self._clock.now + seconds, EventKind.FINISHED, group.name, group.token)
        if seconds > self._setting.params.lease_seconds / 2:
            self._clock.add(self._renewal, EventKind.RENEW, group.name, group.token)

    @property
    def _renewal(self) -> float:
        """Return the virtual time in seconds of the next renewal of a lease."""
        return self._clock.now + self._setting.params.lease_seconds / 3

    def _drop(self, group: Group) -> None:
        """End the work of a group. Nothing of it can be lost any more."""
        self.layout.settle(group, self._clock.now)
        group.token += 1
        group.busy, group.lease = False, None
        self.layout.label(group, NodeLabel.IDLE)

    def _deal(self, count: int) -> None:
        """Add rollouts to the shares of the groups in turn, if they are dealt out."""
        groups = [*self._all_groups()]
        if not self._setting.systems.pull:
            for number in range(count):
                groups[number % len(groups)].share += 1

    # Parts

    def _trainer_groups(self) -> dict[str, Group]:
        """Return the groups of on-demand accelerators. Their degree is the smallest one."""
        degree = min(self._setting.params.sequence_parallel)
        count = max(1, self._setting.cluster.on_demand // degree)
        names = [f"trainer-{number}" for number in range(count)]
        return {name: Group(name, [], degree) for name in names}

    def _all_groups(self) -> Iterator[Group]:
        yield from self._trainers.values()
        yield from self.layout.groups.values()

    def _group(self, event: Event) -> Group | None:
        """Return the group whose present work the event belongs to."""
        group = self._trainers.get(event.name) or self.layout.groups.get(event.name)
        return group if group is not None and group.token == event.token else None

    def _restart_lives(self, begun: int) -> None:
        self._lives = lives(self.trace)
        self._begun = begun
        for _ in range(begun):
            next(self._lives)
        self._await_next(add=not begun)

    def _await_next(self, add: bool = True) -> None:
        self._next = next(self._lives, None)
        if self._next is not None and add:
            self._clock.add(self._next.start, EventKind.START)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two iterations, when no request is leased."""
        busy = [group.name for group in self._all_groups() if group.lease is not None]
        if busy or self._ledger.select([RequestState.LEASED]):
            raise RuntimeError(f"groups {', '.join(busy)} have work: save the state between two iterations")
        return {
            "clock": self._clock.state_dict(),
            "layout": self.layout.state_dict(),
            "begun": self._begun,
            "running": [_life(one) for one in self._life.values()],
            "tokens": [[group.name, group.token] for group in self._trainers.values()],
        }

    def load_state_dict(self, state: Mapping[str, Any], policy: Policy) -> None:
        """Set the saved state. `policy`: the weights of the saved version."""
        self._restart_lives(state["begun"])
        self._clock.load_state_dict(state["clock"])
        self.layout.load_state_dict(state["layout"])
        self._compute.publish(self.layout.version, policy)
        lived = (NodeLife(*one) for one in state["running"])
        self._life = {one.name: one for one in lived}
        for name, token in state["tokens"]:
            self._trainers[name] = replace(self._trainers[name], token=token)


def _life(one: NodeLife) -> list[Any]:
    return [one.name, one.start, one.notice, one.end]
