"""The topology of a job: its domains, nodes and ranks as nested boxes.

Few ranks are shown one by one, many by node, very many by domain. Slow ranks and unhealthy nodes are shown
one by one at every size, as far as there is room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from convoy_controllers.cached import Node, Pod
from convoy_controllers.placement.topology import UNKNOWN, along, topology
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.layout import Slot, present, slots, world_size
from convoy_crds.nodehealth import NodeHealth, State
from convoy_crds.placement import PlacementStatus, QueueState
from convoy_crds.placement_summary import key_label, placement_lines
from convoy_crds.summaries import WARNING_REASONS, shorten_list
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase
from convoy_operator.dashboard.core.formatting import counted, log_link, node_link, ranges
from convoy_operator.dashboard.core.job import Fact
from convoy_operator.dashboard.core.nodes import TONES
from convoy_operator.dashboard.core.rows import Tone

USUAL_KEYS = ("topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
"""Node labels that are shown for a job without topology keys, the nearest first."""
MAX_RANKS = 64
"""Maximum number of ranks of a job whose ranks are shown one by one."""
MAX_NODES = 60
"""Maximum number of nodes of a job whose nodes are all shown."""
MAX_DOMAINS = 60
"""Maximum number of domains of one key that are shown."""
MAX_MARKED = 6
"""Maximum number of nodes with marks that a domain shows, if not all nodes are shown."""
MAX_RANGE_CHARS = 48
"""Longest text with the numbers of ranks. A longer one is replaced by the number of ranks."""
NO_NODES = "No pod of the job has a node."
NOT_ALLOWED = "Nodes are not shown, because you may not list nodes."
_QUEUE_TONES = {
    QueueState.ADMITTED: Tone.GOOD,
    QueueState.WAITING: Tone.BUSY,
    QueueState.EVICTED: Tone.WARN,
    QueueState.INACTIVE: Tone.BAD,
}
_HEALTHY = frozenset({State.QUALIFIED, State.UNVERIFIED, State.EXEMPT})
"""States of a node that need no mark."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A badge in a box."""

    text: str
    tone: Tone = Tone.PLAIN
    href: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A domain or a node, with what is in it."""

    kind: str
    """Name of the topology key without its prefix, such as `rack`; `node` for a node."""
    name: str
    text: str
    tone: Tone = Tone.PLAIN
    href: str = ""
    marks: tuple[Mark, ...] = ()
    inside: tuple[Box, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyView:
    """The content of the section."""

    facts: tuple[Fact, ...]
    boxes: tuple[Box, ...] = ()
    waiting: str = ""
    """The pods without a node, and what they wait for; empty if there are none."""
    note: str = ""
    """A remark about what the boxes leave out; empty if they are complete."""


@dataclass(slots=True)
class _NodeRanks:
    """A node with its ranks in their order."""

    name: str
    labels: Mapping[str, str]
    ranks: list[int] = field(default_factory=list)
    marks: tuple[Mark, ...] = ()
    """Marks for the node's own state, and for its slow ranks."""


def view(
    job: TrainingJob,
    pods: Iterable[Pod],
    nodes: Mapping[str, Node] | None,
    healths: Mapping[str, NodeHealth],
) -> TopologyView | None:
    """Return the content of the section; None if the job has nothing to show in it. `nodes` holds the nodes
    of the job's pods, by name; None if the user may not list nodes.
    """
    own = {pod.name: pod for pod in pods}
    keys = _keys(job, nodes or {})
    if not keys and not placement_lines(job):
        return None
    placed = _places(job, own, nodes, healths)
    facts = tuple(_facts(job, placed, keys, known=nodes is not None))
    waiting = _waiting(job, own)
    if nodes is None:
        return TopologyView(facts, _stored_domains(job), waiting, NOT_ALLOWED)
    boxes, note = _boxes(job, placed, keys)
    return TopologyView(facts, boxes, waiting, note if boxes else NO_NODES)


def _keys(job: TrainingJob, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """Return the topology keys to show, the nearest first: those of the job, or else the usual labels that
    the job's nodes have.
    """
    if wanted := job.spec.placement.topology_keys:
        return tuple(wanted)
    return tuple(key for key in USUAL_KEYS if any(node.labels.get(key) for node in nodes.values()))


def _places(
    job: TrainingJob,
    own: Mapping[str, Pod],
    nodes: Mapping[str, Node] | None,
    healths: Mapping[str, NodeHealth],
) -> list[_NodeRanks]:
    """Return the nodes of the incarnation in the order of their first ranks."""
    slow = _slow_ranks(job)
    found: dict[str, _NodeRanks] = {}
    for slot in present(job):
        pod = own.get(slot.pod)
        if pod is None or not pod.view.node:
            continue
        name = pod.view.node
        known = nodes.get(name) if nodes else None
        place = found.setdefault(name, _NodeRanks(name, known.labels if known else {}))
        place.ranks += _ranks(slot)
    for place in found.values():
        name = place.name
        state = _node_marks(nodes.get(name), healths.get(name)) if nodes is not None else ()
        place.marks = (*state, *(_slow_mark(job, rank, slow[rank]) for rank in place.ranks if rank in slow))
    return list(found.values())


def _ranks(slot: Slot) -> range:
    return range(slot.rank_offset, slot.rank_offset + slot.processes)


def _slow_ranks(job: TrainingJob) -> dict[int, str]:
    """Return the cause of each slow rank; empty if the job has ended."""
    if job.status.phase in TERMINAL:
        return {}
    return {rank: one.cause for one in job.status.stragglers for rank in one.ranks}


def _slow_mark(job: TrainingJob, rank: int, cause: str) -> Mark:
    return Mark(f"rank {rank}: {cause}", Tone.WARN, _log(job, rank))


def _log(job: TrainingJob, rank: int) -> str:
    return log_link(job.metadata.namespace or "", job.metadata.name, rank)


def _node_marks(node: Node | None, health: NodeHealth | None) -> tuple[Mark, ...]:
    """Return marks for a node that is not as it should be."""
    found = []
    if node is None:
        found.append(Mark("Deleted", Tone.BAD))
    elif not node.ready:
        found.append(Mark("NotReady", Tone.BAD))
    elif node.cordoned:
        found.append(Mark("Cordoned", Tone.QUIET))
    if health is not None and health.status.state not in _HEALTHY:
        found.append(Mark(health.status.state, TONES[health.status.state]))
    return tuple(found)


def _boxes(
    job: TrainingJob, placed: Sequence[_NodeRanks], keys: Sequence[str]
) -> tuple[tuple[Box, ...], str]:
    """Return the boxes, and a note on what they leave out."""
    every = len(placed) <= MAX_NODES
    shown = list(keys)
    while shown and _count(placed, shown) > MAX_DOMAINS:
        shown.pop(0)
    chips = sum(len(one.ranks) for one in placed) <= MAX_RANKS
    boxes = _domain_boxes(job, placed, shown, every=every, chips=chips)
    notes = []
    if not every:
        notes.append(f"Of {len(placed):,} nodes, only nodes with a mark have boxes.")
    if len(shown) < len(keys):
        left = ", ".join(f"{key_label(key)}s" for key in keys[: len(keys) - len(shown)])
        notes.append(f"There are too many {left} to show.")
    return boxes, " ".join(notes)


def _count(placed: Sequence[_NodeRanks], keys: Sequence[str]) -> int:
    """Return the number of domains of the first key."""
    return len({tuple(one.labels.get(key, "") for key in keys) for one in placed})


def _domain_boxes(
    job: TrainingJob, placed: Sequence[_NodeRanks], keys: Sequence[str], *, every: bool, chips: bool
) -> tuple[Box, ...]:
    """Return the boxes of the farthest key, with all others inside, in the order of the ranks."""
    if not keys:
        marked = placed if every else [one for one in placed if one.marks][:MAX_MARKED]
        return tuple(_node_box(job, one, chips=chips) for one in marked)
    key = keys[-1]
    groups: defaultdict[str, list[_NodeRanks]] = defaultdict(list)
    for one in placed:
        groups[one.labels.get(key, "")].append(one)
    found = []
    for name, group in groups.items():
        inside = _domain_boxes(job, group, keys[:-1], every=every, chips=chips)
        left_out = sum(bool(one.marks) for one in group) - MAX_MARKED if len(keys) == 1 and not every else 0
        marks = (Mark(f"{counted(left_out, 'more node')} with marks", Tone.WARN),) if left_out > 0 else ()
        ranks = [rank for one in group for rank in one.ranks]
        text = f"{counted(len(group), 'node')}, {_shown_ranks(ranks)}"
        found.append(Box(key_label(key), name or UNKNOWN, text, marks=marks, inside=inside))
    return tuple(found)


def _node_box(job: TrainingJob, one: _NodeRanks, *, chips: bool) -> Box:
    link = node_link(one.name)
    if not chips:
        return Box("node", one.name, _shown_ranks(one.ranks), href=link, marks=one.marks)
    slow = {mark.href for mark in one.marks if mark.href}
    rest = [rank for rank in one.ranks if _log(job, rank) not in slow]
    marks = (*one.marks, *(Mark(f"rank {rank}", href=_log(job, rank)) for rank in rest))
    return Box("node", one.name, "", href=link, marks=marks)


def _shown_ranks(numbers: Sequence[int]) -> str:
    """Return the numbers of the ranks, or how many they are if the numbers need too much room."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    text = f"ranks {ranges(numbers)}"
    return text if len(text) <= MAX_RANGE_CHARS else f"{len(numbers):,} ranks"


def _stored_domains(job: TrainingJob) -> tuple[Box, ...]:
    """Return the domains of the first key as the job's status has them, for users who may not list nodes."""
    placed = job.status.placement
    if placed is None or not placed.keys:
        return ()
    first = placed.keys[0]
    return tuple(Box(key_label(first.key), one.name, counted(one.ranks, "rank")) for one in first.ranks)


def _facts(
    job: TrainingJob, placed: Sequence[_NodeRanks], keys: Sequence[str], *, known: bool
) -> Iterable[Fact]:
    """Yield the facts above the boxes."""
    placement = job.status.placement or PlacementStatus()
    gang, gang_tone = _gang_state(job)
    more = {"Gang": f": {gang}" if gang else ""}
    tones = {"Gang": gang_tone}
    if placement.queue is not None:
        tones["Queue"] = _QUEUE_TONES[placement.queue.state]
    if known and keys and placement.hops is not None and _complete(job, placed):
        best = _fewest_hops(placed, keys)
        more["Ring hops"] = f" ({best} at best)" if best < placement.hops else ""
    for label, text in placement_lines(job):
        yield Fact(label, text + more.get(label, ""), tones.get(label, Tone.PLAIN))


def _complete(job: TrainingJob, placed: Sequence[_NodeRanks]) -> bool:
    return sum(len(one.ranks) for one in placed) == world_size(present(job))


def _fewest_hops(placed: Sequence[_NodeRanks], keys: Sequence[str]) -> int:
    """Return the hops of the shortest ring through these nodes."""
    found = topology(keys, {one.name: one.labels for one in placed})
    names = [one.name for one in placed]
    return found.ring_hops([names[index] for index in along(names, found)])


def _gang_state(job: TrainingJob) -> tuple[str, Tone]:
    """Return the reason of the condition GangScheduled with its tone; empty without the condition."""
    for one in job.status.conditions:
        if one.type == ConditionType.GANG_SCHEDULED:
            good = one.status == "True"
            tone = Tone.GOOD if good else Tone.WARN if one.reason in WARNING_REASONS else Tone.BUSY
            return one.reason, tone
    return "", Tone.PLAIN


def _waiting(job: TrainingJob, own: Mapping[str, Pod]) -> str:
    """Return the pods without a node, and the reason."""
    status = job.status
    if status.phase in TERMINAL or status.phase in (Phase.SUSPENDED, Phase.SUSPENDING):
        return ""
    names = [slot.pod for slot in slots(job) if not _has_node(own.get(slot.pod))]
    if not names:
        return ""
    waits = f"{counted(len(names), 'pod waits', 'pods wait')} for a node ({shorten_list(names, 4)})"
    return f"{waits}: {_why(job, [own[name] for name in names if name in own])}"


def _has_node(pod: Pod | None) -> bool:
    return pod is not None and bool(pod.view.node) and not ended(pod.view)


def _why(job: TrainingJob, waiting: Sequence[Pod]) -> str:
    """Return why pods have no node: the reason of the job, or else the scheduler's message."""
    conditions = job.status.conditions
    held = [one for one in conditions if one.type == ConditionType.SCHEDULED and one.status == "False"]
    gang = [one for one in conditions if one.type == ConditionType.GANG_SCHEDULED and one.status == "False"]
    for one in chain(gang, held):
        if one.reason in WARNING_REASONS or one.message:
            return f"{one.reason}: {one.message}"
    message = next((pod.view.unschedulable for pod in waiting if pod.view.unschedulable), "")
    return message or "the scheduler has not placed them yet"
