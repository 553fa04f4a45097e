"""Other buckets of gradients: the trace that DistributedDataParallel would leave with another bucket size.

DDP fills a bucket with gradients in the order in which the backward pass yields them, until the bucket has
reached its size. Then it launches the all-reduce of the bucket. It waits for all of them after the last one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from convoy_workloads.traces.attributes import number_of, set_attributes, value_of
from convoy_workloads.traces.convert.kinds import ELEMENT_BYTES
from convoy_workloads.traces.findings import Finding, InvalidTrace, Rule
from convoy_workloads.traces.gloo_threads import THREADS_PER_GROUP
from convoy_workloads.traces.trace import Collective, Trace, collective_of, group_of, size_of
from convoy_workloads.traces.wire.chakra_pb2 import Node

_GRADIENT = "torch::autograd::AccumulateGrad"
_ENGINE = f"autograd::engine::evaluate_function: {_GRADIENT}"


@dataclass(frozen=True, slots=True)
class _Gradient:
    bytes: int
    ready: int
    """Index of the node that completes the gradient in the backward pass, and so launches a full bucket."""


def with_buckets(trace: Trace, cap_bytes: int) -> Trace:
    """Return the trace with buckets of `cap_bytes` of gradients. The last gradient of a bucket may exceed it.

    A step whose recorded buckets are the same stays as it is. Computations keep their times: the launch of a
    further bucket costs nothing. Raises InvalidTrace if the trace does not show the gradients of a step and
    their all-reduces.
    """
    if cap_bytes < 1:
        raise ValueError(f"cap_bytes: must be at least 1, not {cap_bytes}")
    steps = sorted({step for node in trace.nodes if isinstance(step := value_of(node, "step"), int)})
    changes, shown = _Changes(trace), False
    for step in steps:
        gradients = list(_gradients(trace, step))
        reduced = _reduced(trace, step, sum(one.bytes for one in gradients))
        if gradients and not reduced:
            raise InvalidTrace([_unclear(trace, f"no group reduces the gradients of step {step}")])
        shown = shown or bool(gradients)
        buckets = list(_buckets(gradients, cap_bytes))
        if [size_of(trace.nodes[place]) for place in reduced] != [one.bytes for one in buckets]:
            changes.replace(reduced, buckets)
    if not shown:
        raise InvalidTrace([_unclear(trace, "no step shows gradients, and which bytes they have")])
    return changes.result() if changes.added else trace


@dataclass(frozen=True, slots=True)
class _Bucket:
    begin: int
    """Bytes of the gradients before it."""
    bytes: int
    ready: int
    """Place of the node that launches it."""


def _buckets(gradients: Sequence[_Gradient], cap_bytes: int) -> Iterator[_Bucket]:
    """Yield the buckets that DDP fills with the gradients."""
    reached = begin = 0
    for number, one in enumerate(gradients):
        reached += one.bytes
        if reached - begin >= cap_bytes or number == len(gradients) - 1:
            yield _Bucket(begin, reached - begin, one.ready)
            begin = reached


def _unclear(trace: Trace, text: str) -> Finding:
    return Finding(Rule.UNKNOWN_SIZE, text, trace.rank)


def _gradients(trace: Trace, step: int) -> Iterator[_Gradient]:
    """Yield the gradients of a step in the order in which they are ready."""
    found: list[tuple[int, int]] = []
    last = dict[int, int]()
    for place, node in enumerate(trace.nodes):
        if value_of(node, "step") == step:
            if node.name == _GRADIENT and (size := _bytes(node)) is not None:
                found.append((place, size))
            if found and node.name in {_GRADIENT, _ENGINE}:
                last[len(found) - 1] = place
    yield from (_Gradient(size, last[number]) for number, (_, size) in enumerate(found))


def _bytes(node: Node) -> int | None:
    """Return the bytes of a gradient; None for a further part of the same operator, which has no inputs."""
    try:
        shapes, types = json.loads(node.inputs.shapes), json.loads(node.inputs.types)
        element = ELEMENT_BYTES[types[0].removeprefix("Tensor(").removesuffix(")").lower()]
        return int(prod(shapes[0])) * element
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _reduced(trace: Trace, step: int, size: int) -> list[int]:
    """Return the places of the all-reduces of a step whose group reduces `size` bytes in it."""
    groups = defaultdict[str, list[int]](list)
    for place, node in enumerate(trace.nodes):
        if collective_of(node) is Collective.ALL_REDUCE and value_of(node, "step") == step:
            groups[group_of(node)].append(place)
    for places in groups.values():
        if sum(size_of(trace.nodes[place]) for place in places) == size:
            return places
    return []


class _Changes:
    """The nodes to leave out, to add, and to depend on instead."""

    def __init__(self, trace: Trace) -> None:
        self.added = defaultdict[int, list[Node]](list)
        """Nodes to add, by the place after which they stand."""
        self._trace = trace
        self._next_id = max((node.id for node in trace.nodes), default=0) + 1
        self._instead: dict[int, list[int]] = {}
        """Ids of the nodes that replace a node, by its id."""
        self._since: dict[int, int] = {}
        """Time before which nothing waits for a replaced node, by its id."""

    def replace(self, old: Sequence[int], buckets: Sequence[_Bucket]) -> None:
        """Replace the all-reduces at the places `old` by those of other buckets."""
        nodes = [self._trace.nodes[place] for place in old]
        made: list[tuple[int, Node]] = []
        lanes = _lanes(nodes)
        for bucket in buckets:
            made.append((bucket.begin, self._make(nodes, bucket.bytes, bucket.ready)))
            if len(made) > lanes:
                made[-1][1].data_deps.append(made[-1 - lanes][1].id)
        launched, first = self._end(buckets[-1].ready), 0
        for node in nodes:
            last = first + size_of(node)
            self._instead[node.id] = [
                one.id for start, one in made if start < last and start + size_of(one) > first
            ]
            self._since[node.id] = launched
            first = last

    def _make(self, nodes: Sequence[Node], size: int, ready: int) -> Node:
        """Return the all-reduce of a bucket that is full after the node at the place `ready`."""
        like, launch = nodes[0], self._trace.nodes[ready]
        node = Node(
            id=self._next_id, name=like.name, type=like.type, start_time_micros=self._end(ready),
            duration_micros=sum(one.duration_micros for one in nodes) * size // sum(map(size_of, nodes)),
            data_deps=[launch.id],
        )  # fmt: skip
        node.attr.extend(one for one in like.attr if one.name not in {"comm_size", "host_gap_us"})
        gap = sorted(number_of(one, "host_gap_us") for one in nodes)[len(nodes) // 2]
        set_attributes(node, comm_size=size, host_gap_us=gap or None)
        self._next_id += 1
        self.added[ready].append(node)
        return node

    def _end(self, place: int) -> int:
        node = self._trace.nodes[place]
        return node.start_time_micros + node.duration_micros

    def result(self) -> Trace:
        """Return the changed trace."""
        nodes: list[Node] = []
        for place, node in enumerate(self._trace.nodes):
            if node.id not in self._instead:
                nodes.append(self._redirected(node))
            nodes.extend(self.added.get(place, ()))
        return Trace(nodes, self._trace.metadata, self._trace.rank)

    def _redirected(self, node: Node) -> Node:
        if not any(one in self._instead for one in (*node.data_deps, *node.ctrl_deps)):
            return node
        changed = Node()
        changed.CopyFrom(node)
        for name in ("data_deps", "ctrl_deps"):
            kept = dict.fromkeys(self._targets(getattr(node, name), node.start_time_micros))
            del getattr(changed, name)[:]
            getattr(changed, name).extend(kept)
        return changed

    def _targets(self, dependencies: Sequence[int], start: int) -> Iterator[int]:
        for one in dependencies:
            if one not in self._instead:
                yield one
            elif start >= self._since[one]:
                # Before its last launch, DDP waits for no bucket: what came after one came so by chance.
                yield from self._instead[one]


def _lanes(nodes: Sequence[Node]) -> int:
    """Return the number of communications of a group that can run at the same time: as many as the backend
    has threads or streams for a group, or as have been recorded at the same time.
    """
    changes = sorted(
        change
        for node in nodes
        for change in (
            (node.start_time_micros, 1),
            (node.start_time_micros + max(node.duration_micros, 1), -1),
        )
    )
    most, running = THREADS_PER_GROUP if nodes[0].name.startswith("gloo:") else 1, 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most
