"""The lists of the cluster-scoped kinds that have no list on the overview: Engines, CheckpointStores,
GuardPolicies, HealthSweeps and HardwareClasses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_crds import checkpointstore, engine, guardpolicy, hardwareclass, healthsweep
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.guardpolicy import BreakerState, GuardPolicy, Mode
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep, SweepPhase
from convoy_crds.kind import Kind
from convoy_crds.meta import Condition
from convoy_crds.summaries import NOT_RECONCILED, age
from convoy_crds.terms import ConditionType
from convoy_operator.dashboard.core.formatting import ago, cluster_link
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

UNREADABLE = "Unreadable"
NEW = "New"
READY = "Ready"
NOT_READY = "NotReady"
LEARNING = "Learning"
REFERENCED = "Referenced"
DRIFTED = "Drifted"
TONES: dict[str, Tone] = {
    UNREADABLE: Tone.BAD,
    NOT_READY: Tone.BAD,
    f"Breaker{BreakerState.OPEN}": Tone.BAD,
    f"Breaker{BreakerState.HALF_OPEN}": Tone.WARN,
    SweepPhase.FAILED.value: Tone.BAD,
    NEW: Tone.WARN,
    DRIFTED: Tone.WARN,
    SweepPhase.PENDING.value: Tone.BUSY,
    SweepPhase.RUNNING.value: Tone.BUSY,
    LEARNING: Tone.BUSY,
    Mode.ACT.value: Tone.GOOD,
    Mode.OBSERVE.value: Tone.PLAIN,
    READY: Tone.GOOD,
    REFERENCED: Tone.GOOD,
    SweepPhase.COMPLETE.value: Tone.GOOD,
}
"""The states of the objects, in the order of their counts, with their tones."""


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The list of one kind's objects."""

    kind: Kind[Any]
    title: str
    empty: str
    """Text to show instead of rows: the purpose of such objects, and how to get one."""
    own: tuple[Column, ...]
    """Columns of this kind, between state and age."""
    cells: Callable[[Any, datetime], tuple[Cell, ...]]
    """Return the cells of the columns in `own`."""
    state: Callable[[Any], str]
    why: Callable[[Any], str]
    last: str = "Why"
    """Label of the column of `why`."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return all columns."""
        name, last = Column(self.kind.name, link=True), Column(self.last, wide=True, brief=True)
        return (name, Column("State", badge=True), *self.own, Column("Age", number=True), last)

    def row(self, parsed: ParsedObject[Any], now: datetime) -> Row:
        """Return the table row of an object."""
        name, found = Cell(parsed.name, href=cluster_link(self.kind.plural, parsed.name)), parsed.model
        if found is None:
            unknown = (Cell("-"),) * (len(self.own) + 1)
            cells = (name, Cell(UNREADABLE, Tone.BAD), *unknown, Cell(parsed.parse_error))
            return Row(parsed.name, cells, UNREADABLE)
        state, created = self.state(found), found.metadata.creation_timestamp
        made = Cell(age(created, now), order=-created.timestamp() if created else None)
        badge = Cell(state, TONES[state])
        return Row(
            parsed.name, (name, badge, *self.cells(found, now), made, Cell(self.why(found) or "-")), state
        )

    def rows(self, objects: Iterable[ParsedObject[Any]], now: datetime) -> list[Row]:
        """Return the table rows of objects, by name."""
        return [self.row(parsed, now) for parsed in sorted(objects, key=lambda one: one.name)]


def counts(found: Iterable[Row]) -> dict[str, int]:
    """Return the number of objects in each state, without empty states."""
    numbers = Counter(one.group for one in found)
    return {name: numbers[name] for name in TONES if numbers[name]}


def place(store: CheckpointStore) -> str:
    """Return the bucket or the volume of a store."""
    s3, volume = store.spec.s3, store.spec.volume
    if s3 is not None:
        return f"bucket {s3.bucket}" + (f"/{s3.prefix}" if s3.prefix else "")
    return f"claim {volume.claim_name}" + (f"/{volume.path}" if volume.path else "") if volume else "-"


def _ready(conditions: Iterable[Condition]) -> Condition | None:
    return next((one for one in conditions if one.type == ConditionType.READY), None)


def _ready_state(found: Engine | CheckpointStore) -> str:
    ready = _ready(found.status.conditions)
    return NEW if ready is None else READY if ready.status == "True" else NOT_READY


def _ready_reason(found: Engine | CheckpointStore, unprobed: str = NOT_RECONCILED) -> str:
    """Return the reason why the object is not ready; an empty text if it is ready."""
    ready = _ready(found.status.conditions)
    if ready is None:
        return unprobed
    return "" if ready.status == "True" else f"{ready.reason}: {ready.message}"


def _engine_cells(found: Engine, now: datetime) -> tuple[Cell, ...]:
    return (Cell(f"{found.spec.role_kind}Job"), Cell(found.spec.image))


def _store_cells(found: CheckpointStore, now: datetime) -> tuple[Cell, ...]:
    probed = found.status.probed_at
    namespaces = ", ".join(found.spec.allowed_namespaces).replace("*", "all")
    return (
        Cell(place(found)),
        Cell(namespaces),
        Cell(ago(probed, now), order=-probed.timestamp() if probed else None),
    )


def _policy_cells(found: GuardPolicy, now: datetime) -> tuple[Cell, ...]:
    states = found.status.states
    breaker = found.status.breaker.state
    return (
        _number(found.status.nodes),
        _number(states.get("suspect", 0), Tone.WARN),
        _number(states.get("quarantined", 0), Tone.BAD),
        _number(states.get("condemned", 0), Tone.BAD),
        Cell(breaker, Tone.PLAIN if breaker is BreakerState.CLOSED else Tone.BAD),
    )


def _policy_state(found: GuardPolicy) -> str:
    breaker = found.status.breaker.state
    return found.spec.mode.value if breaker is BreakerState.CLOSED else f"Breaker{breaker}"


def _policy_why(found: GuardPolicy) -> str:
    breaker = found.status.breaker
    if breaker.state is not BreakerState.CLOSED:
        return f"{breaker.reason}: {breaker.message}"
    if not found.status.observed_generation:
        return NOT_RECONCILED
    wrong = [one for one in found.status.conditions if one.status == "False"]
    if wrong:
        return f"{wrong[0].reason}: {wrong[0].message}"
    if not found.status.nodes:
        return "covers no node: spec.selector matches none, or policies of higher priority cover them"
    acts = "takes slow nodes out of service" if found.spec.mode is Mode.ACT else "reports slow nodes only"
    return f"{acts}; sweeps {'are on' if found.spec.sweeps is not None else 'are off'}"


def _sweep_cells(found: HealthSweep, now: datetime) -> tuple[Cell, ...]:
    status = found.status
    ended = status.completion_time
    return (
        Cell(", ".join(found.spec.tiers)),
        Cell(status.progress or "-", order=status.done / status.desired if status.desired else 0.0),
        _number(status.failed, Tone.BAD),
        Cell(ago(ended, now), order=-ended.timestamp() if ended else None),
    )


def _sweep_state(found: HealthSweep) -> str:
    return found.status.phase.value if found.status.observed_generation or found.status.start_time else NEW


def _class_cells(found: HardwareClass, now: datetime) -> tuple[Cell, ...]:
    facts, status = found.status.facts, found.status
    memory = facts.get("memory.gib", "")
    return (
        Cell(facts.get("cpu.model", "-")),
        Cell(f"{memory} GiB" if memory else "-"),
        _number(status.nodes),
        Cell(f"{status.referenced}/{len(status.metrics)}", order=float(status.referenced)),
    )


def _class_state(found: HardwareClass) -> str:
    if found.status.drifted:
        return DRIFTED
    return REFERENCED if found.status.referenced else LEARNING


def _class_why(found: HardwareClass) -> str:
    if found.status.drifted:
        names = ", ".join(found.status.drifted)
        return f"the latest results deviate from the reference by more than 2 %: {names}"
    if not found.status.referenced:
        return "no metric has a reference yet: sweep nine nodes of this class with the tiers L0 and L1"
    return ""


def _number(value: int, tone: Tone = Tone.PLAIN) -> Cell:
    return Cell(str(value), tone if value else Tone.PLAIN, order=float(value))


LISTS = (
    ObjectList(
        checkpointstore.KIND,
        "Checkpoint stores",
        "There are no CheckpointStores. One keeps checkpoints outside the nodes' memory, and the reports of "
        "Experiments: kubectl apply -f examples/store-volume.yaml",
        (Column("Place"), Column("Namespaces"), Column("Probed", number=True)),
        _store_cells,
        _ready_state,
        lambda one: _ready_reason(one, "no agent has tested the store yet"),
    ),
    ObjectList(
        guardpolicy.KIND,
        "Guard policies",
        "There are no GuardPolicies, so Convoy neither reports slow nodes nor acts on them: "
        "kubectl apply -f examples/guard.yaml",
        (
            Column("Nodes", number=True),
            Column("Suspect", number=True),
            Column("Quarantined", number=True),
            Column("Condemned", number=True),
            Column("Breaker", badge=True),
        ),
        _policy_cells,
        _policy_state,
        _policy_why,
    ),
    ObjectList(
        healthsweep.KIND,
        "Health sweeps",
        "There are no HealthSweeps. One tests nodes once, and is deleted a week after its end.",
        (
            Column("Tiers"),
            Column("Nodes done", number=True),
            Column("Failed", number=True),
            Column("Completed", number=True),
        ),
        _sweep_cells,
        _sweep_state,
        lambda one: one.status.message or (NOT_RECONCILED if _sweep_state(one) == NEW else ""),
    ),
    ObjectList(
        hardwareclass.KIND,
        "Hardware classes",
        "There are no HardwareClasses. Convoy makes one for each kind of hardware that a HealthSweep tests.",
        (
            Column("CPU"),
            Column("Memory", number=True),
            Column("Nodes", number=True),
            Column("Metrics with reference", number=True),
        ),
        _class_cells,
        _class_state,
        _class_why,
    ),
    ObjectList(
        engine.KIND,
        "Engines",
        "There are no Engines. The chart brings some, and users can apply their own.",
        (Column("For"), Column("Image")),
        _engine_cells,
        _ready_state,
        lambda one: _ready_reason(one) or one.spec.description,
        "Description",
    ),
)
"""All lists, in the order of the page."""
