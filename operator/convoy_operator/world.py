"""Everything the operator knows, and which keys a change of it concerns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from convoy_controllers.cached import Node, Parent, Pod
from convoy_controllers.keys import Key
from convoy_controllers.views import ENDED_PHASES, PodWarning
from convoy_crds.checkpointstore import KIND as CHECKPOINT_STORE
from convoy_crds.engine import KIND as ENGINE
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_crds.trainingjob_status import TERMINAL, Phase
from convoy_operator.cache import Store
from convoy_operator.queue import WorkQueue
from convoy_operator.views import source_of, store_of

T = TypeVar("T")


class World:
    """The stores of all resources."""

    def __init__(self) -> None:
        self.jobs: Store[Parent] = Store()
        self.engines: Store[Parent] = Store()
        self.checkpoint_stores: Store[Parent] = Store()
        self.by_kind: Mapping[str, Store[Parent]] = {
            TRAINING_JOB.name: self.jobs,
            ENGINE.name: self.engines,
            CHECKPOINT_STORE.name: self.checkpoint_stores,
        }
        """Of the reconciled kinds."""
        self.pods: Store[Pod] = Store(index=lambda pod: (pod.namespace, pod.job))
        self.nodes: Store[Node] = Store()
        self.guard_policies: Store[Parent] = Store()
        self.node_healths: Store[Parent] = Store()
        self.health_sweeps: Store[Parent] = Store()
        self.hardware_classes: Store[Parent] = Store()
        self.pod_warnings: dict[str, PodWarning] = {}
        """The newest Warning of each late pod, by pod uid (pod_events.py)."""
        self.phases: Counter[str] = Counter()
        """Jobs by phase; those without one count as Pending."""
        self._ready_nodes: set[str] = set()
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._from: dict[tuple[str, str], set[Key]] = {}
        """By job, those that name it as what they begin with."""
        self.pods.listen(self._place)
        self.nodes.listen(self._count_ready)
        self.jobs.listen(self._count_phase)
        self.jobs.listen(self._note_source)

    @property
    def agent_nodes(self) -> int:
        """Nodes that carry the agent-ready label."""
        return len(self._ready_nodes)

    @property
    def ready_nodes(self) -> frozenset[str]:
        """Names of the nodes that carry the agent-ready label."""
        return frozenset(self._ready_nodes)

    @property
    def occupied(self) -> Iterable[str]:
        """Nodes that are needed for pods of jobs. Anybody may give a pod our labels."""
        return [node for node, pods in self._on_node.items() if any(map(self._of_a_job, pods.values()))]

    def members_on(self, node: str) -> list[Pod]:
        """Of the pods that a node is needed for, those that are jobs'."""
        return [pod for pod in self.pods_on(node) if self._of_a_job(pod)]

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Pods that a node is needed for, see PodView.needs_node."""
        return tuple(self._on_node.get(node, {}).values())

    def jobs_on(self, node: str) -> set[Key]:
        """Jobs of the pods that a node is needed for."""
        return {Key(TRAINING_JOB.name, pod.namespace, pod.job) for pod in self.pods_on(node)}

    @property
    def active(self) -> int:
        """Jobs that are not over."""
        return self.phases.total() - sum(self.phases[phase] for phase in TERMINAL)

    def parents(self, kind: str) -> Store[Parent]:
        """The store of a reconciled kind."""
        return self.by_kind[kind]

    def jobs_of_engine(self, name: str) -> list[Key]:
        """Jobs that name an Engine and are not over."""
        return [
            Key(TRAINING_JOB.name, job.namespace, job.name)
            for job in self.jobs
            if (job.raw.get("spec", {}).get("engine") or {}).get("name") == name and not ended(job)
        ]

    def jobs_from(self, source: Parent) -> list[Key]:
        """Jobs that are to begin with the state of this one, and have not begun."""
        named = self._from.get((source.namespace, source.name), ())
        found = ((key, self.jobs.get(key.namespace, key.name)) for key in named)
        return [key for key, job in found if job is not None and not job.status.get("incarnation")]

    def jobs_of_store(self, name: str) -> list[Key]:
        """Jobs that name a CheckpointStore and are not over."""
        return [
            Key(TRAINING_JOB.name, job.namespace, job.name)
            for job in self.jobs
            if store_of(job.raw) == name and not ended(job)
        ]

    def own_pods(self, key: Key) -> list[Pod]:
        """Pods of a job that have not ended, but for strangers' that carry its label."""
        job = self.jobs.get(key.namespace, key.name)
        pods = self.pods.indexed((key.namespace, key.name)) if job is not None else []
        return [
            pod
            for pod in pods
            if job is not None and pod.view.owner_uid == job.uid and pod.view.phase not in ENDED_PHASES
        ]

    def active_jobs(self) -> list[Key]:
        """Jobs that are not over."""
        return [Key(TRAINING_JOB.name, job.namespace, job.name) for job in self.jobs if not ended(job)]

    def _of_a_job(self, pod: Pod) -> bool:
        job = self.jobs.get(pod.namespace, pod.job)
        return job is not None and job.uid == pod.view.owner_uid

    def _count_phase(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        if before is not None:
            self.phases[before.status.get("phase") or Phase.PENDING] -= 1
        if after is not None:
            self.phases[after.status.get("phase") or Phase.PENDING] += 1

    def _note_source(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        if before is not None and (name := source_of(before.raw)):
            waiting = self._from.get((before.namespace, name), set())
            waiting.discard(Key(TRAINING_JOB.name, before.namespace, before.name))
            if not waiting:
                self._from.pop((before.namespace, name), None)
        if after is not None and (name := source_of(after.raw)):
            key = Key(TRAINING_JOB.name, after.namespace, after.name)
            self._from.setdefault((after.namespace, name), set()).add(key)

    def _place(self, before: Pod | None, after: Pod | None, own: bool) -> None:
        if before is not None and before.view.node in self._on_node:
            group = self._on_node[before.view.node]
            group.pop(before.uid, None)
            if not group:
                del self._on_node[before.view.node]
        if after is not None and after.view.node and after.view.needs_node:
            self._on_node.setdefault(after.view.node, {})[after.uid] = after

    def _count_ready(self, before: Node | None, after: Node | None, own: bool) -> None:
        if before is not None:
            self._ready_nodes.discard(before.name)
        if after is not None and after.agent_ready:
            self._ready_nodes.add(after.name)


def _either(before: T | None, after: T | None) -> T:
    """The object that a change is about."""
    item = after if after is not None else before
    if item is None:
        raise ValueError("a change of nothing")
    return item


def ended(job: Parent) -> bool:
    """Whether a job's phase is terminal."""
    return job.status.get("phase") in TERMINAL


class Triggers:
    """Tells the queue which keys a change in the world concerns."""

    def __init__(self, world: World, queue: WorkQueue[Key], debounce: float) -> None:
        self._world = world
        self._queue = queue
        self._debounce = debounce
        self._had_agents = False
        world.jobs.listen(self._job)
        world.engines.listen(self._engine)
        world.checkpoint_stores.listen(self._store)
        world.pods.listen(self._pod)
        world.nodes.listen(self._node)

    def _job(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        item = _either(before, after)
        if _stored(before) != _stored(after):
            for waiting in self._world.jobs_from(item):
                self._queue.add(waiting, self._debounce)
        if own:
            return
        key = Key(TRAINING_JOB.name, item.namespace, item.name)
        if (
            before is None
            or after is None
            or before.generation != after.generation
            or before.uid != after.uid
        ):
            self._queue.add(key)
        else:
            # Its status or metadata: looked at, but not at once.
            self._queue.add(key, self._debounce, high=False)

    def _engine(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        item = _either(before, after)
        if own:
            pass
        elif before is not None and after is not None and before.generation == after.generation:
            self._queue.add(Key(ENGINE.name, "", item.name), self._debounce, high=False)
        else:
            self._queue.add(Key(ENGINE.name, "", item.name))
        if before is None or after is None or before.raw != after.raw:
            for key in self._world.jobs_of_engine(item.name):
                self._queue.add(key, self._debounce)

    def _store(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        item = _either(before, after)
        if own:
            pass
        elif before is not None and after is not None and before.generation == after.generation:
            self._queue.add(Key(CHECKPOINT_STORE.name, "", item.name), self._debounce, high=False)
        else:
            self._queue.add(Key(CHECKPOINT_STORE.name, "", item.name))
        if _worth(before) != _worth(after):
            for key in self._world.jobs_of_store(item.name):
                self._queue.add(key, self._debounce)

    def _pod(self, before: Pod | None, after: Pod | None, own: bool) -> None:
        if before is not None and after is not None and before.view == after.view:
            return
        item = _either(before, after)
        key = Key(TRAINING_JOB.name, item.namespace, item.job)
        # An exit costs every other rank of the job its time; all else that pods tell comes in bursts.
        urgent = after is None or (
            after.view.phase in ENDED_PHASES and (before is None or before.view.phase != after.view.phase)
        )
        self._queue.add(key, 0.0 if urgent else self._debounce)

    def _node(self, before: Node | None, after: Node | None, own: bool) -> None:
        has = self._world.agent_nodes > 0
        if has != self._had_agents:
            self._had_agents = has
            for key in self._world.active_jobs():
                self._queue.add(key, self._debounce)
        if _use(before) != _use(after):
            for key in self._world.jobs_on(_either(before, after).name):
                self._queue.add(key, self._debounce)


def _stored(job: Parent | None) -> tuple[object, ...]:
    """What of a job concerns others that are to begin with its state."""
    if job is None:
        return ()
    marks = (job.status.get("checkpoint") or {}).get("watermarks") or {}
    return job.uid, job.generation, marks.get("remote") is not None


def _worth(store: Parent | None) -> tuple[object, ...]:
    """What of a CheckpointStore concerns the jobs that name it: not when it was last tried."""
    return (store.raw.get("spec"), store.status.get("conditions")) if store is not None else ()


def _use(node: Node | None) -> tuple[bool, ...]:
    """What of a node concerns the jobs on it."""
    return (node.ready, node.cordoned, node.agent_ready) if node is not None else ()
