"""What a look at the nodes' health is shown: the world and what agents tell, as plain data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import Node, Parent
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.nodehealth.seeing import Seen, SeenJob, SeenNode, results, see
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.layout import present, world_size
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.trainingjob import GuardAction, TrainingJob
from convoy_operator.cache import Store
from convoy_operator.world import World

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=BaseModel)

_LONG_AGO = datetime.fromtimestamp(0, UTC)


class Told(Protocol):
    """What agents have told."""

    def hardware(self, node: str) -> wire.Hardware:
        """Of a node; not `known` before its agent has told of it."""
        ...

    def heard_of(self, node: str) -> bool:
        """Whether a node's agent is to be taken for present."""
        ...

    def suspicions(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """By node, what jobs hold against it."""
        ...

    def noticed(self) -> Mapping[str, tuple[Suspicion, ...]]:
        """By node, what jobs see of it that may lie in it and need not."""
        ...

    def paces(self) -> Mapping[str, JobPace]:
        """By job (namespace/name), how fast it is."""
        ...


class Parsed(Generic[M]):
    """Models of raw objects, each read once per version; what is not valid is logged and left out."""

    def __init__(self, model: type[M]) -> None:
        self._model = model
        self._known: dict[str, tuple[int, M | None]] = {}

    def get(self, parent: Parent) -> M | None:
        """The model of an object; None when it is not valid."""
        version, found = self._known.get(parent.uid, (-1, None))
        if version != parent.version:
            try:
                found = self._model.model_validate(parent.raw)
            except ValidationError as error:
                found = None
                log.error("not read", kind=self._model.__name__, name=parent.name, error=str(error))
            self._known[parent.uid] = parent.version, found
        return found

    def all(self, store: Store[Parent]) -> list[M]:
        """Of all objects of a store; what is gone is forgotten."""
        found = [model for parent in store if (model := self.get(parent)) is not None]
        if len(self._known) > 2 * len(store):
            alive = {parent.uid for parent in store}
            self._known = {uid: one for uid, one in self._known.items() if uid in alive}
        return found


class Sight:
    """Looks at the world."""

    def __init__(
        self, world: World, told: Told, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._world = world
        self._told = told
        self._now = now
        self._policies = Parsed(GuardPolicy)
        self._healths = Parsed(NodeHealth)
        self._jobs = Parsed(TrainingJob)
        self._sweeps = Parsed(HealthSweep)

    def policies(self) -> list[GuardPolicy]:
        """All, as they are stored."""
        return self._policies.all(self._world.guard_policies)

    def healths(self) -> list[NodeHealth]:
        """Of all hardware, as they are stored."""
        return self._healths.all(self._world.node_healths)

    def look(self) -> Seen:
        """All hardware, by the policy that is for it."""
        return see(
            self.policies(),
            self.healths(),
            [self._node(node) for node in self._world.nodes],
            self._seen_jobs(),
            self._told.suspicions(),
            self._told.noticed(),
            results(self._sweeps.all(self._world.health_sweeps)),
            self._told.paces(),
            self._now(),
        )

    def _node(self, node: Node) -> SeenNode:
        hardware = self._told.hardware(node.name)
        return SeenNode(
            name=node.name,
            uid=node.uid,
            created=node.created or _LONG_AGO,
            labels=node.labels,
            machine_id=node.machine_id,
            boot_id=node.boot_id,
            driver=hardware.driver,
            accelerators=tuple(hardware.accelerators) if hardware.known else None,
            heard=self._told.heard_of(node.name),
            schedulable=node.ready and node.agent_ready and not node.cordoned,
        )

    def _seen_jobs(self) -> list[SeenJob]:
        placed: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for node in self._world.nodes:
            for pod in self._world.members_on(node.name):
                placed[pod.namespace, pod.job][node.name] += 1
        found = []
        for (namespace, name), nodes in placed.items():
            parent = self._world.jobs.get(namespace, name)
            model = self._jobs.get(parent) if parent is not None else None
            found.append(_job(f"{namespace}/{name}", nodes, model))
        return found


def _job(name: str, nodes: Mapping[str, int], job: TrainingJob | None) -> SeenJob:
    if job is None:
        return SeenJob(name, nodes, moves=False)
    point = job.status.checkpoint
    saves = job.spec.checkpoint.tiers.any or point is not None
    ranks = world_size(present(job)) if job.status.membership else 0
    return SeenJob(
        name=name,
        nodes=nodes,
        gpus=max(1, ranks),
        moves=saves and job.spec.guard.action is GuardAction.SWAP,
        saved=point.time if point is not None else None,
        formed=job.status.start_time,
    )
