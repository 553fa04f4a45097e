"""The messages of a trace: those of protobuf, or plain ones where protobuf is missing or another version."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convoy_workloads.traces.wire.chakra_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
else:
    try:
        from convoy_workloads.traces.wire.chakra_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
    except Exception:  # An old protobuf raises errors of its own.
        from convoy_workloads.traces.wire.plain import AttributeProto, GlobalMetadata, IOInfo, Node

__all__ = ["AttributeProto", "GlobalMetadata", "IOInfo", "Node"]
