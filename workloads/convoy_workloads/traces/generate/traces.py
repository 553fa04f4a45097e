"""The traces of a synthetic training job.

A layer has two halves, as attention and feed-forward network in a transformer. With tensor parallelism an
all-reduce of the activations follows each half, forward and backward, and the next half waits for it. With
data parallelism an all-reduce of a layer's gradients follows its last backward pass, and only the optimizer
waits for it. Stages pass activations on, and gradients back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from convoy_workloads.traces.attributes import set_attributes
from convoy_workloads.traces.generate.workload import (
    Position,
    Workload,
    data_group,
    passes,
    place_of,
    process_groups,
    tensor_group,
)
from convoy_workloads.traces.trace import Collective, NodeType, Trace, set_type
from convoy_workloads.traces.wire.chakra_pb2 import Node

HALVES = ("attention", "feed-forward")


def generate(workload: Workload) -> Iterator[Trace]:
    """Yield the trace of each rank. Raises InvalidWorkload for a workload that cannot be generated."""
    workload.check()
    groups = json.dumps(process_groups(workload))
    for rank in range(workload.ranks):
        trace = Trace(_Rank(workload, place_of(rank, workload)).nodes(), rank=rank)
        set_attributes(trace.metadata, rank=rank, world_size=workload.ranks, process_groups=groups)
        yield trace


class _Rank:
    """Builds the nodes of one rank."""

    def __init__(self, workload: Workload, place: Position) -> None:
        self._workload = workload
        self._place = place
        self._rank = place.rank(workload)
        self._nodes: list[Node] = []
        self._step = 0
        self._last: list[int] = []
        """Ids of the nodes that the next computation depends on."""
        self._first_layer = place.stage * workload.stage_layers

    def nodes(self) -> list[Node]:
        """Return all nodes. A node depends only on nodes before it."""
        for step in range(1, self._workload.steps + 1):
            self._step = step
            gradients: list[int] = []
            for backward, microbatch in passes(self._workload, self._place.stage):
                gradients += self._pass(backward, microbatch)
            self._last += gradients
            for layer in range(self._first_layer, self._first_layer + self._workload.stage_layers):
                self._compute(f"layer {layer} optimizer", self._workload.optimizer_us, 0)
        return self._nodes

    def _pass(self, backward: bool, microbatch: int) -> list[int]:
        """Add the pass of one microbatch through this stage. Return the all-reduces of gradients."""
        workload = self._workload
        gradients: list[int] = []
        last = microbatch == workload.microbatches - 1
        tag = 2 * ((self._step - 1) * workload.microbatches + microbatch) + backward
        self._receive(backward, tag)
        layers = range(self._first_layer, self._first_layer + workload.stage_layers)
        for layer in reversed(layers) if backward else layers:
            name = f"layer {layer} {'backward' if backward else 'forward'}"
            micros = (workload.backward_us if backward else workload.forward_us) // 2
            for half in reversed(HALVES) if backward else HALVES:
                self._compute(f"{name} {half}", micros, workload.operations * (1 + backward) // 2)
                group = tensor_group(self._place, workload)
                if group is not None:
                    self._last = [self._all_reduce(f"{name} {half}", workload.activation_bytes, group)]
            group = data_group(self._place, workload)
            if backward and last and group is not None:
                gradients.append(self._all_reduce(name, workload.parameter_bytes // workload.tensor, group))
        self._send(backward, tag)
        return gradients

    def _compute(self, name: str, micros: int, operations: int) -> None:
        node = self._add(name, NodeType.COMP)
        node.duration_micros = micros
        share = operations // self._workload.tensor
        size = self._workload.activation_bytes + self._workload.parameter_bytes // self._workload.tensor
        set_attributes(node, is_cpu_op=False, num_ops=share or None, tensor_size=size if share else None)
        self._last = [node.id]

    def _all_reduce(self, name: str, size: int, group: str) -> int:
        node = self._add(f"{name} all-reduce", NodeType.COLLECTIVE)
        set_attributes(
            node, is_cpu_op=False, comm_type=int(Collective.ALL_REDUCE), comm_size=size, pg_name=group
        )
        return int(node.id)

    def _receive(self, backward: bool, tag: int) -> None:
        source = self._neighbour(1 if backward else -1)
        if source is not None:
            node = self._message("gradients" if backward else "activations", NodeType.RECV, tag)
            set_attributes(node, comm_src=source, comm_dst=self._rank)
            self._last = [*self._last, node.id]

    def _send(self, backward: bool, tag: int) -> None:
        target = self._neighbour(-1 if backward else 1)
        if target is not None:
            node = self._message("gradients" if backward else "activations", NodeType.SEND, tag)
            set_attributes(node, comm_src=self._rank, comm_dst=target)

    def _message(self, name: str, kind: NodeType, tag: int) -> Node:
        # A receive is posted early: it waits for no computation of this rank.
        node = self._add(f"{kind.name.lower()} {name}", kind, [] if kind is NodeType.RECV else None)
        set_attributes(node, is_cpu_op=False, comm_size=self._workload.activation_bytes, comm_tag=tag)
        return node

    def _neighbour(self, distance: int) -> int | None:
        stage = self._place.stage + distance
        if not 0 <= stage < self._workload.pipeline:
            return None
        return Position(self._place.copy, self._place.part, stage).rank(self._workload)

    def _add(self, name: str, kind: NodeType, needs: list[int] | None = None) -> Node:
        node = Node(id=len(self._nodes), name=name, data_deps=self._last if needs is None else needs)
        set_type(node, kind)
        set_attributes(node, step=self._step)
        self._nodes.append(node)
        return node
