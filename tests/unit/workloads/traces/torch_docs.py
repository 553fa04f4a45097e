"""Small host and Kineto traces in the form that torch writes. Times are microseconds."""

from __future__ import annotations

from typing import Any

MAIN, GLOO = 100, 200
"""Threads."""


def event(
    name: str, start: float, end: float, tid: int = MAIN, cat: str = "cpu_op", **args: Any
) -> dict[str, Any]:
    """Return an event of a Kineto trace. The argument `record` is the number of the record function."""
    if "record" in args:
        args["Record function id"] = args.pop("record")
    named = {key.replace("_", " ") if key != "dtype" else key: value for key, value in args.items()}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": start,
        "dur": end - start,
        "args": named,
    }


def step(number: int, start: float, end: float, record: int = 1) -> dict[str, Any]:
    """Return the annotation around a step."""
    return event(f"ProfilerStep#{number}", start, end, cat="user_annotation", record=record)


def work(
    start: float, end: float, record: int, name: str = "gloo:all_reduce", tid: int = GLOO
) -> dict[str, Any]:
    """Return the annotation of a work of gloo."""
    return event(name, start, end, tid, "user_annotation", record=record)


def kineto(*events: dict[str, Any], rank: int = 0, **more: Any) -> dict[str, Any]:
    """Return a Kineto trace of one rank of two, with one process group."""
    group = {"pg_name": "0", "backend_config": "cpu:gloo,cuda:nccl", "pg_size": 2, "ranks": [0, 1]}
    distributed = {"backend": "gloo", "rank": rank, "world_size": 2, "pg_config": [group]}
    return {"traceEvents": list(events), "distributedInfo": distributed, **more}


def node(
    id: int, name: str, record: int, reads: Any = (), writes: Any = (), thread: int = 1
) -> dict[str, Any]:
    """Return an operator of a host trace with its arguments and results."""
    attributes = {"rf_id": record, "tid": thread}
    return {
        "id": id,
        "name": name,
        "ctrl_deps": 1,
        "inputs": {"values": list(reads), "shapes": [], "types": []},
        "outputs": {"values": list(writes), "shapes": [], "types": []},
        "attrs": [{"name": key, "type": "uint64", "value": value} for key, value in attributes.items()],
    }


def tensor(storage: int, elements: int = 8) -> list[Any]:
    """Return a tensor of floats as host traces write it."""
    return [storage + 1000, storage, 0, elements, 4, "cpu"]


def host(*nodes: dict[str, Any]) -> dict[str, Any]:
    """Return a host trace."""
    return {"schema": "1.1.1-chakra.0.0.4", "nodes": list(nodes)}
