"""The cluster cache: one store for each resource that controllers reconcile, watch or apply."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from convoy_controllers.cached import CachedObject, Node, OtherPod, Pod
from convoy_controllers.children import Create
from convoy_controllers.controller import Controller, labelled_resources, whole_resources
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.placement.waiting import waits_for_room
from convoy_controllers.resources import NODES, PODS, Resource
from convoy_controllers.views import ENDED_PHASES, PodWarning
from convoy_crds import trainingjob
from convoy_crds.kind import Kind
from convoy_crds.terms import LABEL_MANAGED, OPERATOR
from convoy_crds.trainingjob_status import TERMINAL, Phase
from convoy_operator import views
from convoy_operator.cache import Store
from convoy_operator.node_usage import NodeUsage

_OWNER = "owner"
"""Name of the index that finds applied objects by the uid of their owner."""


class ClusterCache:
    """The stores of all resources."""

    def __init__(self, controllers: Sequence[Controller[Any]] = CONTROLLERS) -> None:
        self.pods: Store[Pod] = Store(index=lambda pod: (pod.namespace, pod.job))
        self.nodes: Store[Node] = Store()
        self.other_pods: Store[OtherPod] = Store()
        """The pods that belong to no job. Empty until `others_wanted` is set."""
        self.usage = NodeUsage(self.pods, self.other_pods, self.nodes, self._of_a_job)
        self.others_wanted = asyncio.Event()
        """Set when a plan needs to know the free room on nodes. Before that, nobody reads the other pods."""
        self.others_known = False
        """True if `other_pods` has been filled."""
        self.kinds: Mapping[str, Store[CachedObject]] = {
            one.resource.kind: Store() for one in controllers if one.kind is not None
        }
        """The store of each reconciled kind, by name of the kind."""
        own = {one.resource: self.kinds[one.resource.kind] for one in controllers if one.kind is not None}
        made = {made.resource for one in controllers for made in one.makes if made.applied}
        self.labelled: Mapping[Resource, Store[CachedObject]] = {
            resource: Store() for resource in labelled_resources(controllers)
        }
        self.whole: Mapping[Resource, Store[CachedObject]] = {
            resource: Store() for resource in whole_resources(controllers)
        }
        """The stores of resources of others, such as PriorityClasses."""
        created = {made.resource for one in controllers for made in one.makes if Create in made.children}
        self._children = {**self.labelled, **{one: own[one] for one in (made | created) & own.keys()}}
        self._views: Mapping[Resource, tuple[Store[Any], Callable[[Mapping[str, Any]], Any]]] = {
            PODS: (self.pods, views.pod),
            NODES: (self.nodes, views.node),
            **{
                resource: (store, views.cached_object)
                for resource, store in (own | self.labelled | self.whole).items()
            },
        }
        for store in self._children.values():
            store.add_index(_OWNER, lambda item: (views.controller_uid(item.raw) or "",))
        for one in controllers:
            for watch in one.watches:
                if watch.index:
                    self.kinds[one.resource.kind].add_index(watch.index, partial(views.texts_at, watch.index))
        self._over = {one.resource.kind: one.over for one in controllers}
        self.jobs = self.kinds[trainingjob.KIND.name]
        progressing = [self.kinds[one.resource.kind] for one in controllers if one.progress]
        self._endless = [store for store in progressing if store is not self.jobs]
        """The stores of the other kinds whose status has progress. Their objects do not finish."""
        self.pod_warnings: dict[str, PodWarning] = {}
        """The newest Warning Event of each pod that starts too slowly, by pod uid. `PodEvents` fills this
        mapping.
        """
        self.phases: Counter[str] = Counter()
        """Number of jobs in each phase; a job without a phase counts as Pending."""
        self.waiting = 0
        """Number of objects that wait for room on nodes, according to their status."""
        self._ready_nodes: set[str] = set()
        self._on_node: dict[str, dict[str, Pod]] = {}
        self.pods.listen(self._update_node_pods)
        self.nodes.listen(self._count_ready)
        self.jobs.listen(self._count_phase)
        for store in self.kinds.values():
            store.listen(self.usage.owner_changed)
            store.listen(self._count_waiting)

    def objects(self, kind: Kind[Any]) -> Store[CachedObject]:
        """Return the store of a reconciled kind."""
        return self.kinds[kind.name]

    def over(self, kind: Kind[Any], item: CachedObject) -> bool:
        """Return True if an object is finished. A finished object is not reconciled when other objects
        change.
        """
        return self._over[kind.name](item)

    def store(self, resource: Resource) -> Store[Any]:
        """Return the store of a resource."""
        return self._views[resource][0]

    def children(self, resource: Resource, owner_uid: str) -> list[CachedObject]:
        """Return the objects of a resource that the operator has applied or created for that owner. Of
        created objects, only those of Convoy's own kinds are cached here.
        """
        found = self._children[resource].by_index(_OWNER, owner_uid)
        return [
            one for one in found if (one.raw["metadata"].get("labels") or {}).get(LABEL_MANAGED) == OPERATOR
        ]

    def child(self, resource: Resource, namespace: str, name: str) -> CachedObject | None:
        """Return a cached object by its name; None if it is not cached."""
        found = self._views[resource][0].get(namespace, name) if resource in self._views else None
        return found if isinstance(found, CachedObject) else None

    def upsert(self, resource: Resource, raw: Mapping[str, Any], *, own: bool = False) -> None:
        """Store an object from a response of the API server. Do nothing if the cache does not hold objects
        of the resource.
        """
        if resource in self._views:
            store, view = self._views[resource]
            store.upsert(view(raw), own=own)

    def drop(self, resource: Resource, uid: str) -> None:
        """Remove a deleted object."""
        if resource in self._views:
            store = self._views[resource][0]
            if (known := store.by_uid(uid)) is not None:
                store.remove(known)

    @property
    def agent_nodes(self) -> int:
        """Return the number of nodes that carry the agent-ready label."""
        return len(self._ready_nodes)

    @property
    def ready_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that carry the agent-ready label."""
        return frozenset(self._ready_nodes)

    @property
    def occupied(self) -> Iterable[str]:
        """Return the names of the nodes that at least one pod of a job still needs (see
        `PodView.needs_node`). A pod counts only if its job owns it, because any user can set the job
        label on a pod.
        """
        return [node for node, pods in self._on_node.items() if any(map(self._of_a_job, pods.values()))]

    def members_on(self, node: str) -> list[Pod]:
        """Return the pods that still need the node and that a job owns."""
        return [pod for pod in self.pods_on(node) if self._of_a_job(pod)]

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods that still need the node. See `PodView.needs_node`."""
        return tuple(self._on_node.get(node, {}).values())

    def job_key(self, pod: Pod) -> Key | None:
        """Return the key of the job that a pod's labels name; None if no controller reconciles its kind."""
        return Key(pod.kind, pod.namespace, pod.job) if pod.kind in self.kinds else None

    def job_of(self, key: Key) -> CachedObject | None:
        """Return the job with this key; None if there is none."""
        return self.kinds[key.kind].get(key.namespace, key.name) if key.kind in self.kinds else None

    def jobs_on(self, node: str) -> set[Key]:
        """Return the keys of the jobs whose pods need the node."""
        keys = (self.job_key(pod) for pod in self.pods_on(node))
        return {key for key in keys if key is not None}

    @property
    def active(self) -> int:
        """Return the number of objects whose status may have progress to write: all but the finished jobs."""
        unfinished = self.phases.total() - sum(self.phases[phase] for phase in TERMINAL)
        return unfinished + sum(len(store) for store in self._endless)

    def own_pods(self, key: Key) -> list[Pod]:
        """Return the pods that the job owns and that have not ended. A pod that carries the job's label but
        has another owner is left out.
        """
        job = self.job_of(key)
        pods = self.pods.indexed((key.namespace, key.name)) if job is not None else []
        return [
            pod
            for pod in pods
            if job is not None and pod.view.owner_uid == job.uid and pod.view.phase not in ENDED_PHASES
        ]

    def _of_a_job(self, pod: Pod) -> bool:
        key = self.job_key(pod)
        job = self.job_of(key) if key is not None else None
        return job is not None and job.uid == pod.view.owner_uid

    def _count_phase(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None:
            self.phases[before.status.get("phase") or Phase.PENDING] -= 1
        if after is not None:
            self.phases[after.status.get("phase") or Phase.PENDING] += 1

    def _count_waiting(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        for one, sign in ((before, -1), (after, 1)):
            if one is not None and waits_for_room(one.status):
                self.waiting += sign

    def _update_node_pods(self, before: Pod | None, after: Pod | None, own: bool) -> None:
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
