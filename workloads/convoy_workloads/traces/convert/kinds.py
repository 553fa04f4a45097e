"""Kinds of communication by the names that torch and the backends give them."""

from __future__ import annotations

import re

from convoy_workloads.traces.trace import Collective, NodeType

Kind = Collective | NodeType
"""A collective, or NodeType.SEND or NodeType.RECV."""

_KINDS: dict[str, Kind] = {
    "allreduce": Collective.ALL_REDUCE,
    "reduce": Collective.REDUCE,
    "allgather": Collective.ALL_GATHER,
    "gather": Collective.GATHER,
    "scatter": Collective.SCATTER,
    "broadcast": Collective.BROADCAST,
    "alltoall": Collective.ALL_TO_ALL,
    "alltoallv": Collective.ALL_TO_ALL,
    "reducescatter": Collective.REDUCE_SCATTER,
    "barrier": Collective.BARRIER,
    "monitoredbarrier": Collective.BARRIER,
    "send": NodeType.SEND,
    "recv": NodeType.RECV,
    "recvanysource": NodeType.RECV,
}
_FILLERS = re.compile(r"_|base$|coalesced$|oop$|intotensor|tensor$|single$|sparse")
_DEVICE_NAME = re.compile(r"(?:nccl|rccl)\w*?(?:Dev)?Kernel_?([A-Za-z]+)")

ELEMENT_BYTES = {
    **dict.fromkeys(("double", "long", "long int", "c10::complex<float>", "complexfloat", "int64"), 8),
    **dict.fromkeys(("float", "int", "float32", "int32"), 4),
    **dict.fromkeys(("half", "bfloat16", "c10::half", "c10::bfloat16", "short", "short int", "float16"), 2),
    **dict.fromkeys(("unsigned char", "signed char", "bool", "byte", "char", "uint8", "int8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "c10::float8_e4m3fn", "c10::float8_e5m2"), 1),
    **dict.fromkeys(("c10::complex<double>", "complexdouble"), 16),
}
"""Bytes of an element by its type, in lower case."""


def kind_named(name: str) -> Kind | None:
    """Return the kind for the name of an operator, such as `c10d::_allgather_base_` or `gloo:all_reduce`."""
    word = (name.rpartition(":")[2].lower().split() or [""])[0]  # NCCL names a send `nccl:send 0->1`.
    while (shorter := _FILLERS.sub("", word)) != word:
        word = shorter
    return _KINDS.get(word)


def kind_of_kernel(name: str) -> Kind | None:
    """Return the kind for the name of a kernel, such as `ncclDevKernel_AllReduce_Sum_f32_RING_LL`."""
    found = _DEVICE_NAME.match(name)
    return _KINDS.get(found[1].lower()) if found else None


def is_communication_kernel(name: str) -> bool:
    """Return True for the name of a kernel of NCCL or RCCL."""
    return _DEVICE_NAME.match(name) is not None
