"""Reads the workload of a simulation."""

from __future__ import annotations

from convoy_controllers.astrasim.parameters import (
    CollectiveNode,
    CollectiveType,
    ComputeNode,
    MessageNode,
    Node,
    Workload,
)
from convoy_controllers.astrasim.parsing.fields import LARGEST, Field

_COMMON = frozenset({"id", "type", "deps", "is_cpu_op"})
_FIELDS = {
    "comp": _COMMON | {"duration_us", "num_ops", "tensor_size"},
    "coll": _COMMON | {"comm_type", "comm_size", "comm_group", "priority", "involved_dim", "duration_us"},
    "send": _COMMON | {"src", "dst", "comm_size", "tag"},
    "recv": _COMMON | {"src", "dst", "comm_size", "tag"},
}
MOST_US = LARGEST // 1000


def workload(field: Field, groups: dict[int, tuple[int, ...]], ranks: int) -> Workload:
    """Return the workload."""
    field.only(frozenset({"all_ranks", "per_rank"}))
    if field.has("all_ranks") == field.has("per_rank"):
        raise field.error("needs either all_ranks or per_rank")
    if field.has("per_rank"):
        lists = list(field["per_rank"].items())
        if len(lists) != ranks:
            raise field["per_rank"].error(f"needs {ranks} lists, one for each rank, has {len(lists)}")
        return Workload(
            tuple(tuple(_node(one, rank) for one in nodes.items()) for rank, nodes in enumerate(lists)),
            groups,
        )
    nodes = tuple(_node(one, None) for one in field["all_ranks"].items())
    return Workload((nodes,) * ranks, groups)


def communication_groups(field: Field, ranks: int) -> dict[int, tuple[int, ...]]:
    """Return the ranks of each communication group, in ring order."""
    found = {}
    for name in field.members():
        one = field[name]
        if not name.isascii() or not name.isdecimal() or len(name) > 9 or int(name) == 0:
            raise one.error("the number of a communication group must be a whole number above 0")
        members = tuple(item.whole(0, ranks - 1) for item in one.items())
        if not members or len(set(members)) != len(members):
            raise one.error("needs at least one rank, and each rank once")
        found[int(name)] = members
    return found


def _node(field: Field, rank: int | None) -> Node:
    """Return a node. `rank` is the rank that has it; None if all ranks have it."""
    kind = field["type"].text()
    if kind not in _FIELDS:
        raise field["type"].error(f"must be one of {', '.join(_FIELDS)}, is {kind[:60]!r}")
    field.only(_FIELDS[kind])
    number = field["id"].whole()
    deps = tuple(one.whole() for one in field["deps"].items()) if field.has("deps") else ()
    on_cpu = field.has("is_cpu_op") and field["is_cpu_op"].flag()
    if on_cpu and kind != "comp":
        raise field["is_cpu_op"].error("a communication node cannot run on the CPU")
    match kind:
        case "comp":
            return ComputeNode(
                number, deps, _whole(field, "duration_us", MOST_US), on_cpu, _whole(field, "num_ops"),
                _whole(field, "tensor_size"),
            )  # fmt: skip
        case "coll":
            return _collective(field, number, deps)
        case _:
            return _message(field, rank, number, deps)


def _collective(field: Field, number: int, deps: tuple[int, ...]) -> CollectiveNode:
    involved = None
    if field.has("involved_dim"):
        involved = tuple(one.flag() for one in field["involved_dim"].items())
    return CollectiveNode(
        number,
        field["comm_type"].choice(CollectiveType),
        field["comm_size"].whole(),
        deps,
        # Group 0 is upstream's name for all ranks.
        _whole(field, "comm_group") or None,
        _whole(field, "priority"),
        involved,
        _whole(field, "duration_us", MOST_US),
    )


def _message(field: Field, rank: int | None, number: int, deps: tuple[int, ...]) -> MessageNode:
    sends = field["type"].value == "send"
    own, peer = ("src", "dst") if sends else ("dst", "src")
    if field.has(own):
        stated = field[own].whole()
        if rank is None:
            raise field[own].error("a list of nodes for all ranks cannot name the own rank: use per_rank")
        if stated != rank:
            raise field[own].error(f"must be {rank}, the rank of the node, is {stated}")
    return MessageNode(
        number,
        sends,
        field[peer].whole(),
        field["comm_size"].whole(),
        _whole(field, "tag", 2**31 - 1),
        deps,
    )


def _whole(field: Field, name: str, most: int = LARGEST) -> int:
    return field[name].whole(0, most) if field.has(name) else 0
