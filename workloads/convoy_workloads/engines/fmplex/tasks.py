"""The table of tasks: where each task is placed, its slot, its head and its card."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from convoy_workloads.engines.fmplex.adapters import NO_ADAPTER, AdapterShape, Slots
from convoy_workloads.engines.fmplex.backbones import BackboneFacts
from convoy_workloads.engines.fmplex.forms import Row
from convoy_workloads.engines.fmplex.heads import Head
from convoy_workloads.engines.fmplex.params import Backbone, Params, Task
from convoy_workloads.engines.fmplex.placement import Demand, place
from convoy_workloads.engines.fmplex.stats import TaskStats
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.protocol import ModelCard, TensorSpec

UNLIMITED = 2**62
"""Bytes of a pod without a limit."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The place of a task."""

    task: Task
    backbone: Backbone
    pod: int
    """Rank of the pod in the replica."""
    slot: int
    """Slot of the task's adapter in the pod's stack."""


@dataclass(slots=True)
class VirtualModel:
    """A task that serves: a private model for its clients on a shared backbone."""

    assignment: Assignment
    facts: BackboneFacts
    head: Head
    card: ModelCard
    stats: TaskStats = field(default_factory=TaskStats)
    pending: int = 0
    """Number of rows that wait or are computed."""
    detached: list[Future[None]] = field(default_factory=list)
    """Futures to resolve when the task's last row has ended; empty if the task accepts requests."""

    @property
    def task(self) -> Task:
        """Return the task's parameters."""
        return self.assignment.task

    @property
    def digest(self) -> str:
        """Return the digest of the backbone."""
        return self.assignment.backbone.digest

    def length_of(self, number: int, row: Row) -> int:
        """Return the length to which a row is padded. Raises RequestError if the backbone cannot compute
        it.
        """
        try:
            return self.facts.form.length_of(row)
        except ValueError as error:
            field = f"inputs.0.data.{number}"
            raise RequestError(400, f"{field}: {error}", field, "invalid_value") from error


class Assigner:
    """Assigns tasks to pods and slots. All ranks of a replica assign the same from the same parameters."""

    def __init__(self, params: Params, facts: Mapping[str, BackboneFacts], pods: int) -> None:
        """`facts`: the facts about each backbone, by digest."""
        self._params = params
        self._facts = facts
        self._room = [params.memory_mib * 2**20 or UNLIMITED] * pods
        self._slots: defaultdict[tuple[int, str], Slots] = defaultdict(Slots)
        self._assigned: dict[str, Assignment] = {}

    def assign(self, tasks: Sequence[Task]) -> list[Assignment]:
        """Assign further tasks. Raises Unplaceable if a pod has no room for one, and ValueError if a task
        has no backbone.
        """
        demands = [self._demand(one.task) for one in self._assigned.values()]
        demands += [self._demand(task) for task in tasks]
        sizes = {digest: one.bytes for digest, one in self._facts.items()}
        placed = {name: one.pod for name, one in self._assigned.items()}
        pods = place(demands, sizes, self._room, placed)
        found = []
        for task in tasks:
            backbone, pod = self._params.backbone_of(task), pods[task.name]
            slots = self._slots[pod, backbone.digest]
            slot = slots.allocate() if task.adapter_ref else NO_ADAPTER
            found.append(Assignment(task, backbone, pod, slot))
        self._assigned |= {one.task.name: one for one in found}
        return found

    def release(self, one: Assignment) -> None:
        """Free the place of a task."""
        self._slots[one.pod, one.backbone.digest].free(one.slot)
        del self._assigned[one.task.name]

    def _demand(self, task: Task) -> Demand:
        backbone = self._params.backbone_of(task)
        facts = self._facts[backbone.digest]
        adapter = AdapterShape(facts.layers, facts.width, self._params.adapter_rank, facts.dtype).bytes
        return Demand(task.name, backbone.digest, adapter if task.adapter_ref else 0)


def card_of(one: Assignment, facts: BackboneFacts, head: Head) -> ModelCard:
    """Return the card of a task."""
    task, backbone = one.task, one.backbone
    return ModelCard(
        task.name,
        0,
        facts.source,
        {
            "backbone": backbone.name,
            "backbone_digest": backbone.digest,
            "adapter": task.adapter_ref or None,
            "head": task.head,
            "weight": task.weight,
            "slo_ms": task.slo_ms or None,
            "pod": one.pod,
        },
        (facts.form.input,),
        (TensorSpec(head.output, "FP32", (-1, head.size)),),
    )
