"""Attributes of nodes: named values whose field of the wire format matters.

Readers of Chakra traces, such as ASTRA-sim's feeder, expect each known attribute in one certain field of
AttributeProto, and read 0 from any other (et_feeder_node.cpp of github.com/mlcommons/chakra).
"""

from __future__ import annotations

from typing import Any

from convoy_workloads.traces.wire.messages import AttributeProto, GlobalMetadata, Node

FIELDS = {
    "is_cpu_op": "bool_val",
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_priority": "int32_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "pg_name": "string_val",
    # Written and read by Convoy alone.
    "host_gap_us": "int64_val",
    "wait_us": "int64_val",
    "step": "int64_val",
}
"""The field of AttributeProto that holds each known attribute."""


def attribute(name: str, value: Any) -> AttributeProto:
    """Return an attribute. Unknown names hold whole numbers as int64, and other values by their type."""
    field = FIELDS.get(name) or _field_by_type(value)
    return AttributeProto(name=name, **{field: value})


def _field_by_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool_val"
    if isinstance(value, int):
        return "int64_val"
    return "double_val" if isinstance(value, float) else "string_val"


def set_attributes(owner: Node | GlobalMetadata, **values: Any) -> None:
    """Append attributes to a node or to the facts about a trace. A value None is left out."""
    owner.attr.extend(attribute(name, value) for name, value in values.items() if value is not None)


def value_of(owner: Node | GlobalMetadata, name: str) -> Any:
    """Return the value of an attribute from its own field; None if it is absent or in another field."""
    for one in owner.attr:
        if one.name == name:
            field = one.WhichOneof("value")
            return getattr(one, field) if field and field == FIELDS.get(name, field) else None
    return None


def text_of(owner: Node | GlobalMetadata, name: str) -> str:
    """Return the text of an attribute; empty if it is absent or no text."""
    value = value_of(owner, name)
    return value if isinstance(value, str) else ""


def number_of(owner: Node | GlobalMetadata, name: str) -> int:
    """Return the whole number of an attribute; 0 if it is absent or no whole number."""
    value = value_of(owner, name)
    return value if isinstance(value, int) else 0
