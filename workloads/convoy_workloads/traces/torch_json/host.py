"""The host trace of torch's ExecutionTraceObserver: operators with their tensors, without times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.traces.findings import Finding, Findings, InvalidTrace, Rule
from convoy_workloads.traces.torch_json.document import (
    FieldError,
    bounded,
    clean,
    items,
    mapping,
    text,
    whole,
)
from convoy_workloads.traces.wire.limits import LIMITS, Limits

GROUPS_NODE = "## process_group:init ##"
"""Name of the node that lists process groups."""
FLAT_SCHEMA = "1.0.1"
"""The schema of PyTorch before that of Chakra. All values stand in the node itself, not in lists of
attributes (torch/csrc/profiler/standalone/execution_graph_observer.cpp of PyTorch 1.12).
"""
SCHEMAS = f"{FLAT_SCHEMA}, and 1.0.2-chakra.0.0.4 to 1.1.1-chakra.0.0.4"
"""The schemas that are read."""
_NESTED_LISTS = 4
_TENSOR_PARTS = 6


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of an operator."""

    storage: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HostNode:
    """An operator or annotation of the host."""

    id: int
    name: str
    parent: int
    thread: int
    record: int
    """Number of the record function, which also the Kineto trace names."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)

    def values(self) -> list[Any]:
        """Return the arguments."""
        return items(self.inputs.get("values"))

    def input_tensors(self) -> list[Tensor]:
        """Return the tensors among the arguments."""
        return list(tensors(self.values()))

    def output_tensors(self) -> list[Tensor]:
        """Return the tensors among the results."""
        return list(tensors(items(self.outputs.get("values"))))


@dataclass(frozen=True, slots=True)
class Host:
    """A rank's host trace, as PyTorch's ExecutionTraceObserver writes it."""

    schema: str
    nodes: list[HostNode]

    def groups(self) -> list[dict[str, Any]]:
        """Return the process groups that the trace lists, in the order of their creation."""
        for node in self.nodes:
            if node.name == GROUPS_NODE and node.values() and isinstance(node.values()[0], str):
                try:
                    listed = json.loads(node.values()[0])
                except (ValueError, RecursionError):
                    return []
                return [one for one in items(listed) if isinstance(one, dict)]
        return []


def tensors(values: list[Any], depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors in the arguments of an operator, which may be in lists.

    torch writes a tensor as [tensor, storage, offset, elements, bytes of an element, device].
    """
    for value in values:
        if not isinstance(value, list):
            continue
        if len(value) == _TENSOR_PARTS and isinstance(value[5], str):
            _, storage, _, elements, size = (bounded(one) for one in value[:5])
            total = None if elements is None or size is None else bounded(elements * size)
            if storage is not None and total is not None:
                yield Tensor(storage, total)
        elif depth < _NESTED_LISTS:
            yield from tensors(value, depth + 1)


def read_host(document: Mapping[str, Any], found: Findings, limits: Limits = LIMITS) -> Host:
    """Return the host trace in a JSON object. Nodes with invalid fields are left out, with findings.

    Raises InvalidTrace if the object is no host trace, or has too many nodes.
    """
    schema, listed = document.get("schema"), document.get("nodes")
    if not isinstance(schema, str) or not isinstance(listed, list):
        problem = (
            "no host trace of torch's ExecutionTraceObserver: the fields `schema` and `nodes` are missing"
        )
        raise InvalidTrace([Finding(Rule.INVALID_FIELD, problem)])
    if len(listed) > limits.nodes:
        raise InvalidTrace([Finding(Rule.TOO_MANY_NODES, f"nodes: more than {limits.nodes}")])
    flat = schema == FLAT_SCHEMA
    if listed and not flat and not any(isinstance(one, dict) and "attrs" in one for one in listed):
        raise InvalidTrace(
            [
                Finding(
                    Rule.INVALID_FIELD,
                    f"schema {clean(schema[:40])}: the schemas that are read are {SCHEMAS}",
                )
            ]
        )
    nodes: dict[int, HostNode] = {}
    for number, one in enumerate(listed):
        try:
            node = (_flat_node if flat else _node)(mapping(one), f"nodes[{number}]", limits)
        except FieldError as error:
            found.add(Finding(Rule.INVALID_FIELD, str(error)))
            continue
        if node.id in nodes:
            found.add(Finding(Rule.DUPLICATE_ID, f"nodes[{number}]: id {node.id} is taken", node=node.id))
            continue
        nodes[node.id] = node
    return Host(clean(schema[: limits.string_length]), list(nodes.values()))


def _node(one: Mapping[str, Any], path: str, limits: Limits) -> HostNode:
    attributes = {
        name: value["value"]
        for value in items(one.get("attrs"))
        if isinstance(value, dict) and isinstance(name := value.get("name"), str) and "value" in value
    }
    return HostNode(
        id=whole(one, "id", path),
        name=text(one, "name", path)[: limits.string_length],
        parent=whole(one, "ctrl_deps", path, 0),
        thread=whole(attributes, "tid", f"{path}.attrs", 0),
        record=whole(attributes, "rf_id", f"{path}.attrs", 0),
        inputs=mapping(one.get("inputs")),
        outputs=mapping(one.get("outputs")),
    )


def _flat_node(one: Mapping[str, Any], path: str, limits: Limits) -> HostNode:
    """Return a node of FLAT_SCHEMA."""
    parts = {
        owner: {
            "values": one.get(owner),
            **{kind: one.get(f"{owner[:-1]}_{kind}") for kind in ("shapes", "types")},
        }
        for owner in ("inputs", "outputs")
    }
    return HostNode(
        id=whole(one, "id", path),
        name=text(one, "name", path)[: limits.string_length],
        parent=whole(one, "parent", path, 0),
        thread=whole(one, "tid", path, 0),
        record=whole(one, "rf_id", path, 0),
        **parts,
    )
