from __future__ import annotations

import json
from typing import Any

import pytest

from convoy_agents.pods import assignment
from convoy_agents.pods.assignment import AssignmentError
from convoy_agents.wire import hub_pb2


def message(**changes: Any) -> hub_pb2.Assignment:
    members = [
        hub_pb2.Member(slot=0, pod_uid="a", node="one", peer_address="10.0.0.1:1", processes=2),
        hub_pb2.Member(slot=1, pod_uid="b", node="two", peer_address="10.0.0.2:1", processes=2),
    ]
    fields: dict[str, Any] = {
        "pod_uid": "b", "job_uid": "j", "job": "ns/j", "incarnation": 3, "slot": 1, "rank_offset": 2,
        "processes": 2, "world_size": 4, "master_addr": "10.0.0.1", "master_port": 29500,
        "hang_seconds": 600, "members": members, "command": ["python", "x.py"],
        "role": "worker", "replica": 1, "strict": True, "slots": 2,
    }  # fmt: skip
    return hub_pb2.Assignment(**{**fields, **changes})


def fields_of(descriptor: Any) -> set[str]:
    """Return the names of all fields of a message, including those of nested messages."""
    found = set()
    for field in descriptor.fields:
        found.add(field.name)
        if field.message_type is not None:
            found |= fields_of(field.message_type)
    return found


def test_an_assignment_contains_no_store_credentials() -> None:
    """The agent sends the assignment to the pod and writes it to a file, so it must not contain the store's
    credentials.
    """
    credentials = {"access_key", "secret_key", "session_token"}
    assert credentials <= fields_of(hub_pb2.Store.DESCRIPTOR)
    fields = fields_of(hub_pb2.Assignment.DESCRIPTOR)
    assert "keep_last" in fields and not credentials & fields


def test_the_keys_leave_the_agent_only_as_files() -> None:
    read = assignment.from_wire(message(key=b"secret", job_key=b"secret too"))
    assert read.key == b"secret" and read.job_key == b"secret too"
    told = f"{read!r} {read.frame()} {json.dumps(read.to_json())}"
    assert "secret" not in told and not {"key", "job_key"} & set(read.to_json())
    again = assignment.from_json(read.to_json())
    told_again = again.frame()
    assert again == read and told_again["keyed"] and told_again["jobKeyed"], "restarted"


def test_an_assignment_round_trips_over_the_wire_and_the_state_file() -> None:
    read = assignment.from_wire(message())
    assert read.ranks == range(2, 4)
    assert read.members[0].peer_address == "10.0.0.1:1"
    assert read.strict
    assert read.frame()["slots"] == 2
    assert assignment.from_json(json.loads(json.dumps(read.to_json()))) == read


def test_the_memory_tiers_round_trip() -> None:
    tiers = hub_pb2.MemoryTiers(
        copies=1,
        limit=7,
        hosts=[hub_pb2.NodeAddress(node="one", peer_address="10.0.0.1:1")],
        store=hub_pb2.StoreUse(name="s3", every_seconds=600, keep_last=2),
        interval_seconds=42,
    )
    read = assignment.from_wire(message(memory=tiers))
    assert (read.memory_limit, read.interval_seconds) == (7, 42)
    assert assignment.from_json(json.loads(json.dumps(read.to_json()))) == read
    without = read.to_json()
    del without["memory"]["interval_seconds"]
    assert assignment.from_json(without).interval_seconds == 0
    assert assignment.from_wire(message()).interval_seconds == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"incarnation": 0}, "incarnation"),
        ({"incarnation": 2**40}, "incarnation"),
        ({"processes": 0}, "processes"),
        ({"processes": 65, "world_size": 100}, "processes"),
        ({"rank_offset": 3}, "world"),
        ({"slot": 2}, "slot"),
        ({"slot": 0}, "is not this pod"),
        ({"members": []}, "slot"),
        ({"command": ["x" * 4096] * 64}, "the command has"),
        ({"members": [hub_pb2.Member(slot=1, pod_uid="b")]}, "slot order"),
    ],
)
def test_a_contradictory_assignment_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(AssignmentError, match=why):
        assignment.from_wire(message(**changes))
