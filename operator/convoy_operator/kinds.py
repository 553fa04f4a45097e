"""From the world to a plan: what each kind's pure plan is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from pydantic import ValidationError

from convoy_controllers.cached import Parent
from convoy_controllers.checkpointstore.observed import Observed as ObservedStore
from convoy_controllers.checkpointstore.plan import plan as plan_store
from convoy_controllers.engine.plan import plan as plan_engine
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.plan import plan as plan_training_job
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_controllers.views import GuardView, NodeView, PodView, SlotView
from convoy_crds.checkpointstore import KIND as CHECKPOINT_STORE
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import KIND as ENGINE
from convoy_crds.engine import Engine
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import invalid, views
from convoy_operator.world import World


class Hub(Protocol):
    """What agents have told, and what is known of their nodes."""

    def slots(self, pods: tuple[PodView, ...]) -> Mapping[str, SlotView]:
        """By pod uid, the reports of the agents of the nodes those pods are on."""
        ...

    def nodes(self, pods: tuple[PodView, ...]) -> Mapping[str, NodeView]:
        """By name, the nodes those pods are on."""
        ...

    def holders(self, job_uid: str) -> tuple[str, ...]:
        """Nodes whose memory holds checkpoints of a job."""
        ...

    def guard(self, job_uid: str) -> GuardView | None:
        """What the telemetry of a job's ranks shows; None before they have told of a step."""
        ...

    def store(self, store: CheckpointStore) -> ObservedStore | None:
        """What was found out about a store; None when its Secret was not looked up."""
        ...


Refused = Mapping[str, Refusal]
"""Pods that the API server would not create, by name."""
Planner = Callable[[World, Hub, Parent, Refused, datetime], Plan]
"""(world, hub, parent, refused pods, now) -> plan."""


def training_job(world: World, hub: Hub, parent: Parent, refused: Refused, now: datetime) -> Plan:
    """The plan of a TrainingJob."""
    if not views.managed(parent.raw):
        return Plan()
    try:
        job = TrainingJob.model_validate(parent.raw)
    except ValidationError as error:
        return invalid.plan(TRAINING_JOB.name, parent.raw, error, now)
    pods = tuple(pod.view for pod in world.pods.indexed((parent.namespace, parent.name)))
    own = tuple(pod for pod in pods if pod.owner_uid == parent.uid)
    stored, other = job.spec.checkpoint.tiers.store, job.spec.checkpoint.resume_from
    observed = Observed(
        job=job,
        engine=_engine(world, job.spec.engine.name) if job.spec.engine else None,
        known_engines=tuple(sorted(engine.name for engine in world.engines)),
        store=_store(world, stored) if stored else None,
        known_stores=_stores_for(world, parent.namespace) if stored else (),
        source=_job(world, parent.namespace, other.job) if other and other.job else None,
        pods=pods,
        slots=hub.slots(own),
        nodes=hub.nodes(pods),
        agent_nodes=world.agent_nodes,
        holders=hub.holders(parent.uid),
        guard=hub.guard(parent.uid),
        warnings={pod.uid: world.pod_warnings[pod.uid] for pod in own if pod.uid in world.pod_warnings},
        create_errors=refused,
    )
    return plan_training_job(observed, now)


def engine(world: World, hub: Hub, parent: Parent, refused: Refused, now: datetime) -> Plan:
    """The plan of an Engine."""
    try:
        model = Engine.model_validate(parent.raw)
    except ValidationError as error:
        return invalid.plan(ENGINE.name, parent.raw, error, now)
    return plan_engine(model, now)


def checkpoint_store(world: World, hub: Hub, parent: Parent, refused: Refused, now: datetime) -> Plan:
    """The plan of a CheckpointStore."""
    try:
        model = CheckpointStore.model_validate(parent.raw)
    except ValidationError as error:
        return invalid.plan(CHECKPOINT_STORE.name, parent.raw, error, now)
    observed = hub.store(model)
    return plan_store(observed, now) if observed is not None else Plan()


def _job(world: World, namespace: str, name: str) -> TrainingJob | None:
    found = world.jobs.get(namespace, name)
    if found is None:
        return None
    try:
        return TrainingJob.model_validate(found.raw)
    except ValidationError:
        # As with an Engine.
        return None


def _store(world: World, name: str) -> CheckpointStore | None:
    found = world.checkpoint_stores.get("", name)
    if found is None:
        return None
    try:
        return CheckpointStore.model_validate(found.raw)
    except ValidationError:
        # As with an Engine.
        return None


def _stores_for(world: World, namespace: str) -> tuple[str, ...]:
    """Stores that jobs of a namespace may name."""
    found = (_store(world, parent.name) for parent in world.checkpoint_stores)
    allowed = (store for store in found if store is not None and store.spec.allows(namespace))
    return tuple(sorted(store.metadata.name for store in allowed))


def _engine(world: World, name: str) -> Engine | None:
    found = world.engines.get("", name)
    if found is None:
        return None
    try:
        return Engine.model_validate(found.raw)
    except ValidationError:
        # Its own reconcile says what is wrong with it; to a job it is as good as absent.
        return None


PLANNERS: Mapping[str, Planner] = {
    TRAINING_JOB.name: training_job,
    ENGINE.name: engine,
    CHECKPOINT_STORE.name: checkpoint_store,
}
