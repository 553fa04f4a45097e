"""A small cluster for tests of a ServingJob's plan: pods, agents and readiness follow simple rules.

A pod gets a node and a launcher at once. Its ranks run when its agent gets the assignment. It becomes ready
if its revision is good. A test may stop any of these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply, Create, Delete
from convoy_controllers.commands import Assign, DeliverModel, Endpoints, PickPort
from convoy_controllers.plan import Plan
from convoy_controllers.resources import CONTROLLER_REVISIONS, PODS, SERVICES, Resource
from convoy_controllers.servingjob import revision
from convoy_controllers.servingjob.loads import Load
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.plan import plan
from convoy_controllers.servingjob.traffic import Figures
from convoy_controllers.views import ModelView, NodeView, PodView, RankView, ReplicaStateView, SlotView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_status import GroupRecord
from convoy_crds.terms import (
    LABEL_ENDPOINT,
    LABEL_GROUP,
    LABEL_INDEX,
    LABEL_NODE_HEALTH,
    LABEL_REVISION,
    LABEL_ROLE,
)
from convoy_crds.trainingjob import TrainingJob

START = datetime(2026, 1, 1, tzinfo=UTC)
NODES = 4


def make_engine(name: str = "lm", **spec: Any) -> Engine:
    """Return a serving Engine that takes one integer parameter, `size`."""
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    body = {
        "image": "convoy/serving:dev",
        "command": ["python", "-m", "lm"],
        "roleKind": "Serving",
        "paramsSchema": schema,
        **spec,
    }
    return Engine.model_validate({"metadata": {"name": name}, "spec": body})


def make_server(name: str = "llm", **spec: Any) -> ServingJob:
    """Return a ServingJob with one role, `worker`. Fields in `spec` (camelCase) replace those of its spec."""
    body = {"roles": [{"name": "worker", "engine": {"name": "lm"}}], "replicas": 2, **spec}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
    return ServingJob.model_validate({"metadata": metadata, "spec": body})


class Servers:
    """One ServingJob on a cluster without latencies. Each `step` is one reconcile."""

    def __init__(self, job: ServingJob | None = None, **spec: Any) -> None:
        self.job = job or make_server(**spec)
        self.now = START
        self.engines = {"lm": make_engine()}
        self.pods: dict[str, PodView] = {}
        self.slots: dict[str, SlotView] = {}
        self.nodes: dict[str, NodeView] = {}
        self.objects: dict[tuple[Resource, str], Mapping[str, Any]] = {}
        self.store: CheckpointStore | None = None
        self.stores = ["s3"]
        """Names of the stores that the job's namespace may use."""
        self.model: Callable[[DeliverModel], tuple[str, str]] = lambda order: ("", "")
        """(order) -> kind and message of the failure of a delivery; empty if it succeeds."""
        self.delivered: list[DeliverModel] = []
        self.source: TrainingJob | None = None
        self.traffic: Figures | None = None
        self.load: Callable[[PodView], Load | None] = lambda pod: None
        """(pod) -> the load that a ready pod reports."""
        self.memory: Any = {}
        self.states: dict[str, tuple[str, ...]] = {}
        """The nodes that hold each saved state of a replica, by uid of the state."""
        self.refused: dict[str, str] = {}
        """Reasons for which the API server refuses to create pods, by a part of their names."""
        self.good: Callable[[PodView], bool] = lambda pod: True
        """(pod) -> True if the pod becomes ready when its ranks run."""
        self.places: Callable[[PodView], bool] = lambda pod: True
        """(pod) -> True if the scheduler finds a node for the pod."""
        self.drains = True
        """True if a deleted pod is gone in the next step."""
        self.events: list[str] = []
        self.plans: list[Plan] = []
        self.assigned: list[Assign] = []
        self.manifests: dict[str, Mapping[str, Any]] = {}
        self._made = 0

    @property
    def revisions(self) -> dict[str, revision.Revision]:
        """The stored revisions, by name."""
        found = [
            self._revision(body) for (kind, _), body in self.objects.items() if kind == CONTROLLER_REVISIONS
        ]
        return {one.name: one for one in found if one is not None}

    @staticmethod
    def _revision(body: Mapping[str, Any]) -> revision.Revision | None:
        return revision.parse(CachedObject("default", body["metadata"]["name"], "", 0, body))

    def observed(self) -> Observed:
        """Return the state from which plans are made."""
        names = {pod.node for pod in self.pods.values() if pod.node}
        refusals = {
            name: Refusal(why)
            for part, why in self.refused.items()
            for name in [*self._expected(), *self.pods]
            if part in name and name not in self.pods
        }
        return Observed(
            job=self.job,
            engines=self.engines,
            known_engines=tuple(sorted(self.engines)),
            revisions=tuple(self.revisions.values()),
            store=self.store,
            known_stores=tuple(self.stores),
            source=self.source,
            pods=tuple(self.pods.values()),
            slots=dict(self.slots),
            nodes={name: self.nodes.get(name, NodeView(name)) for name in names},
            front=self.front,
            agent_nodes=NODES,
            create_errors=refusals,
            traffic=self.traffic,
            loads={
                pod.uid: load
                for pod in self.pods.values()
                if pod.ready and (load := self.load(pod)) is not None
            },
            memory=self.memory,
            states=self.states,
        )

    @property
    def front(self) -> str:
        """The endpoint label of the pods to which the Service leads; empty without a Service."""
        service: Any = self.objects.get((SERVICES, self.job.metadata.name))
        return service["spec"]["selector"][LABEL_ENDPOINT] if service else ""

    def _expected(self) -> list[str]:
        """Return the names of the pods that the job's groups should have."""
        name = self.job.metadata.name
        return [f"{name}-{one.role}-{one.number}-{slot}" for one in self.records for slot in range(4)]

    @property
    def records(self) -> list[GroupRecord]:
        """The stored records of the groups."""
        return self.job.status.internal.groups

    def record(self, number: int = 0, role: str = "worker") -> GroupRecord:
        """Return the stored record of a group."""
        return next(one for one in self.records if (one.role, one.number) == (role, number))

    def step(self) -> Plan:
        """Run one reconcile, and let the cluster carry out its plan."""
        made = plan(self.observed(), self.now)
        self.plans.append(made)
        self.events += [event.reason.name for event in made.events]
        if made.status is not None:
            raw = {**self.job.to_dict(), "status": made.status}
            self.job = ServingJob.model_validate(raw)
        for child in made.children:
            self._carry_out(child)
        wanted = {(child.resource, child.name) for child in made.children if isinstance(child, Apply)}
        for key in [key for key in self.objects if key[0] in made.prune and key not in wanted]:
            del self.objects[key]
        for command in made.commands:
            self._command(command)
        if made.memory is not None:
            self.memory = made.memory
        self._kubelets()
        return made

    def _carry_out(self, child: Any) -> None:
        if isinstance(child, Delete):
            self._delete(child)
        elif isinstance(child, Create):
            self._create(child.manifest)
        elif isinstance(child, Apply) and child.subresource:
            assert child.resource == PODS
            self.pod(child.name, ready=False, ready_changed=self.now.timestamp())
        elif isinstance(child, Apply):
            self.objects[child.resource, child.name] = child.manifest

    def _delete(self, child: Delete) -> None:
        pod = self.pods[child.name]
        assert pod.uid == child.uid
        if child.grace_seconds == 0 or not pod.node:
            self._remove(child.name)
        else:
            self.pod(child.name, deleting=True, ready=False, ready_changed=self.now.timestamp())

    def _remove(self, name: str) -> None:
        pod = self.pods.pop(name)
        self.slots.pop(pod.uid, None)

    def _create(self, body: Mapping[str, Any]) -> None:
        metadata = body["metadata"]
        name = metadata["name"]
        assert name not in self.pods, "the name is in use"
        if any(part in name for part in self.refused):
            return
        self._made += 1
        self.manifests[name] = body
        self.pods[name] = PodView(
            name=name,
            uid=f"pod-{self._made}",
            phase="Pending",
            labels=metadata["labels"],
            annotations=metadata["annotations"],
            created=self.now.timestamp(),
            owner_uid=metadata["ownerReferences"][0]["uid"],
        )

    def _command(self, command: Any) -> None:
        view = self.slots[command.pod_uid]
        if isinstance(command, PickPort):
            fresh = replace(view, port_incarnation=command.incarnation, master_port=29500)
        elif isinstance(command, DeliverModel):
            self.delivered.append(command)
            fresh = replace(view, model=self._delivery(command))
        elif isinstance(command, Endpoints):
            assert command.incarnation == view.incarnation
            fresh = replace(view, endpoints=command.addresses)
        else:
            stored = self.revisions.get(self.pods_by_uid[command.pod_uid].labels[LABEL_REVISION])
            wanted = stored.spec.generation if stored else None
            assert wanted is None or (view.model and view.model.ready), "a rank starts without its model"
            assert isinstance(command, Assign)
            self.assigned.append(command)
            state = command.replica_state
            known = ReplicaStateView(state.hosts, state.limit) if state else None
            ranks = view.ranks
            if view.incarnation != command.incarnation:
                ranks = (RankView(command.rank_offset, "RUNNING", started=self.now.timestamp()),)
            fresh = replace(view, incarnation=command.incarnation, ranks=ranks, replica_state=known)
        self.slots[command.pod_uid] = fresh

    def _delivery(self, order: DeliverModel) -> ModelView:
        kind, why = self.model(order)
        return ModelView(order.source, ready=not kind, failure=kind, message=why)

    def retry_deliveries(self) -> Self:
        """Let all agents try their failed deliveries again."""
        for uid, view in self.slots.items():
            if view.model is not None and not view.model.ready:
                order = DeliverModel(view.node, uid, view.model.source)
                self.slots[uid] = replace(view, model=self._delivery(order))
        return self

    @property
    def pods_by_uid(self) -> dict[str, PodView]:
        """The pods by uid."""
        return {one.uid: one for one in self.pods.values()}

    def _kubelets(self) -> None:
        """Place pods, start launchers, and set the readiness of pods."""
        for name, pod in list(self.pods.items()):
            if pod.deleting:
                if self.drains and not self._dead(pod.node):
                    self._remove(name)
            elif not pod.node:
                self._place(name, pod)
            elif not self._dead(pod.node):
                self._probe(name, pod)

    def _dead(self, node: str | None) -> bool:
        return node in self.nodes and self.nodes[node].silent_seconds > 0

    def _place(self, name: str, pod: PodView) -> None:
        if not self.places(pod):
            self.pod(name, unschedulable="0/4 nodes are available: 4 Insufficient cpu")
            return
        free = [f"node-{number}" for number in range(NODES)]
        free = [node for node in free if not self._dead(node) and not self._closed(node)]
        if not free:
            self.pod(name, unschedulable="0/4 nodes are available: 4 node(s) had untolerated taint")
            return
        used = [one.node for one in self.pods.values()]
        node = min(free, key=used.count)
        self.pod(
            name, node=node, ip=f"10.0.0.{pod.uid.removeprefix('pod-')}", phase="Running", unschedulable=""
        )
        self.slots[pod.uid] = SlotView(pod.uid, node, launcher_connected=True)

    def _closed(self, node: str) -> bool:
        """Return True if a taint keeps new pods off a node."""
        view = self.nodes.get(node)
        return view is not None and (view.cordoned or LABEL_NODE_HEALTH in view.labels)

    def _probe(self, name: str, pod: PodView) -> None:
        view = self.slots[pod.uid]
        runs = bool(view.ranks) and all(rank.state == "RUNNING" for rank in view.ranks)
        ready = runs and pod.phase == "Running" and self.good(pod)
        if ready is not pod.ready:
            self.pod(name, ready=ready, ready_changed=self.now.timestamp())

    def settle(self, limit: int = 60) -> Self:
        """Reconcile, with 2 s between two plans, until three plans in a row write nothing."""
        quiet = 0
        for _ in range(limit):
            made = self.step()
            self.wait(2)
            writes = made.status is not None or made.creations or made.deletions or made.commands
            quiet = 0 if writes else quiet + 1
            if quiet == 3:
                return self
        raise AssertionError(f"the plan still writes after {limit} reconciles: {made}")

    def run(self, steps: int, seconds: float = 2.0) -> Self:
        """Reconcile `steps` times, with `seconds` between two plans."""
        for _ in range(steps):
            self.step()
            self.wait(seconds)
        return self

    def wait(self, seconds: float) -> Self:
        """Advance the time."""
        self.now += timedelta(seconds=seconds)
        return self

    def pod(self, name: str, **facts: Any) -> Self:
        """Change fields of one pod."""
        self.pods[name] = replace(self.pods[name], **facts)
        return self

    def rank(self, pod: str, **facts: Any) -> Self:
        """Change fields in the reports of a pod's ranks."""
        uid = self.pods[pod].uid
        view = self.slots[uid]
        ranks = tuple(replace(rank, **facts) for rank in view.ranks)
        self.slots[uid] = replace(view, ranks=ranks)
        return self

    def exit(self, pod: str, code: int = 1, **facts: Any) -> Self:
        """Let the agent report that the ranks of a pod exited."""
        return self.rank(pod, state="EXITED", exit_code=code, ended=self.now.timestamp(), **facts)

    def silence(self, node: str, seconds: float) -> Self:
        """Make a node's agent silent, with pods that do not reply."""
        since = self.now.timestamp() - seconds
        view = NodeView(
            node, silent_seconds=seconds, silent_since=since, pods_reachable=False, lease_seconds=seconds
        )
        self.nodes[node] = view
        return self

    def edit(self, **fields: Any) -> Self:
        """Change fields of the spec as a user does."""
        raw = self.job.to_dict()
        raw["spec"] = {**raw["spec"], **fields}
        raw["metadata"]["generation"] += 1
        self.job = ServingJob.model_validate(raw)
        return self

    def size(self, value: int) -> Self:
        """Change the engine's parameter, which defines a new revision."""
        roles = [{"name": "worker", "engine": {"name": "lm", "params": {"size": value}}}]
        return self.edit(roles=roles)

    def rollout(self, **fields: Any) -> Self:
        """Change fields of `spec.rollout`."""
        return self.edit(rollout={**self.job.spec.rollout.to_dict(), **fields})

    @property
    def condition(self) -> dict[str, tuple[str, str]]:
        """Status and reason of every condition, by type."""
        return {one.type: (one.status, one.reason) for one in self.job.status.conditions}

    def message(self, kind: str) -> str:
        """Return the message of a condition."""
        return next(one.message for one in self.job.status.conditions if one.type == kind)

    def live(self, **labels: str) -> list[PodView]:
        """Return the pods that are not being deleted. `labels` may name role, group, index or revision."""
        keys = {"role": LABEL_ROLE, "group": LABEL_GROUP, "index": LABEL_INDEX, "revision": LABEL_REVISION}
        return [
            pod
            for pod in self.pods.values()
            if not pod.deleting and all(pod.labels[keys[key]] == value for key, value in labels.items())
        ]

    @property
    def serving(self) -> int:
        """The number of ready pods in slot 0."""
        return sum(pod.ready for pod in self.live(index="0"))

    def quarantine(self, *nodes: str, state: str = "Quarantined") -> Self:
        """Give nodes the marks of a state of their health."""
        for node in nodes:
            self.nodes[node] = NodeView(node, labels={LABEL_NODE_HEALTH: state})
        return self

    def cordon(self, node: str) -> Self:
        """Make a node unschedulable, as `kubectl drain` does first."""
        self.nodes[node] = NodeView(node, cordoned=True)
        return self


def make_store(ready: str = "True", **spec: Any) -> CheckpointStore:
    """Return the CheckpointStore `s3` for all namespaces. `ready` is the status of its condition Ready."""
    condition = {"type": "Ready", "status": ready, "reason": "Probed", "lastTransitionTime": START}
    body = {"s3": {"bucket": "bucket", "credentialsSecret": "keys"}, "allowedNamespaces": ["*"], **spec}
    return CheckpointStore.model_validate(
        {
            "metadata": {"name": "s3", "uid": "uid-s3"},
            "spec": body,
            "status": {"conditions": [{**condition, "message": "no such bucket"}]},
        }
    )


def make_trained(step: int = 0, incarnation: int = 1, uid: str = "uid-train", **tiers: Any) -> TrainingJob:
    """Return the TrainingJob `train`. If `step` is not 0, its store has the generation of that step."""
    mark = {"incarnation": incarnation, "step": step, "time": START}
    checkpoint = {**mark, "tier": "remote", "watermarks": {"remote": mark}} if step else None
    body = {
        "engine": {"name": "gpt"},
        "roles": [{"name": "worker", "replicas": 1}],
        "checkpoint": {"tiers": {"local": {}, "remote": {"store": "s3"}, **tiers}},
    }
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "train", "namespace": "default", "uid": uid},
            "spec": body,
            "status": {"checkpoint": checkpoint, "progress": {"step": step, "loss": 2.5}} if step else {},
        }
    )
