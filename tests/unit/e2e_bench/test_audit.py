"""Tests of requests and times that are read from the audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from e2e.bench.rig import audit
from e2e.bench.rig.audit import Entry, Log
from e2e.bench.rig.jobs import Shape
from e2e.bench.rig.rollout import rollout, running_since

OPERATOR = "operator"


def entry(verb, resource, at, *, name="x", sub="", user=OPERATOR, code=201, **status):
    body = {"status": status} if status else {}
    return Entry(user, verb, resource, sub, "bench", name, code, at - 0.01, at, body)


def line(stage="ResponseComplete", **more):
    event = {
        "stage": stage,
        "verb": "patch",
        "user": {"username": OPERATOR},
        "objectRef": {"resource": "trainingjobs", "subresource": "status", "namespace": "a", "name": "b"},
        "responseStatus": {"code": 200},
        "requestObject": {"status": {"phase": "Running"}},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.250000Z",
        "stageTimestamp": "2026-01-01T00:00:00.500000Z",
        **more,
    }
    return orjson.dumps(event) + b"\n"


def test_a_log_line_is_parsed():
    found = audit.parse(line())
    assert found is not None
    assert (found.user, found.verb, found.name, found.code) == (OPERATOR, "patch", "b", 200)
    midnight = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert (found.received, found.answered) == (midnight + 0.25, midnight + 0.5)
    assert found.body == {"status": {"phase": "Running"}}
    assert audit.parse(line(stage="RequestReceived")) is None


def test_a_growing_log_is_read_in_whole_lines(tmp_path: Path):
    path = tmp_path / "audit.log"
    log = Log(path)
    assert log.read() == []
    path.write_bytes(line() + line()[:50])
    assert len(log.read()) == 1
    with path.open("ab") as file:
        file.write(line()[50:] + line())
    assert len(log.read()) == 2
    assert len(log.entries) == 3
    log.restart()
    assert log.entries == []


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (entry("create", "pods", 1), True),
        (entry("patch", "trainingjobs", 1, sub="status", code=200), True),
        (entry("patch", "trainingjobs", 1, sub="status", code=409), False),
        (entry("update", "leases", 1, code=200), False),
        (entry("create", "tokenreviews", 1), False),
        (entry("list", "pods", 1, code=200), False),
    ],
)
def test_only_requests_that_store_an_object_are_writes(one: Entry, counts: bool):
    assert bool(audit.writes([one], [OPERATOR])) is counts
    assert not audit.writes([one], ["another"])


def test_the_busiest_window_is_found():
    assert audit.busiest([], 10) == 0
    assert audit.busiest([0, 1, 2, 20, 21, 22, 23, 40], 10) == 4


def whole(pods: int) -> list[Entry]:
    return [
        entry("create", "trainingjobs", 10.01, user="user"),
        *(entry("create", "pods", 11.0 + index, name=f"p{index}") for index in range(pods)),
        *(entry("create", "pods", 12.0 + index, name=f"p{index}", sub="binding") for index in range(pods)),
        *(entry("patch", "pods", 13.0 + index, name=f"p{index}", sub="status") for index in range(pods)),
        entry("patch", "trainingjobs", 30.0, sub="status", phase="Starting"),
        entry("patch", "trainingjobs", 40.0, sub="status", phase="Running"),
    ]


def test_a_rollout_is_timed_from_the_first_request_to_the_last_response():
    found = rollout(whole(2), Shape(1, 2), "trainingjobs", [OPERATOR])
    assert found.created == pytest.approx(2)
    assert found.bound == pytest.approx(3)
    assert found.up == pytest.approx(4)
    assert found.running == pytest.approx(30)
    assert found.surplus == 0
    # One user makes all writes here: two pods, two bindings, two patches by kubelets and two status patches.
    assert found.writes_per_pod == 4


def test_an_incomplete_rollout_has_no_times():
    found = rollout(whole(1), Shape(2, 1), "trainingjobs", [OPERATOR])
    assert (found.created, found.bound, found.up, found.running) == (None, None, None, None)
    assert rollout([], Shape(1, 1), "trainingjobs", [OPERATOR]).created is None


def test_a_pod_created_twice_counts_as_surplus():
    found = rollout([*whole(2), entry("create", "pods", 20.0)], Shape(1, 2), "trainingjobs", [OPERATOR])
    assert found.surplus == 1


def test_recovery_is_the_last_change_to_running_after_the_fault():
    entries = [
        entry("patch", "trainingjobs", at, sub="status", name=name, phase=phase)
        for name, at, phase in [
            ("a", 1, "Running"),
            ("a", 5, "Restarting"),
            ("a", 8, "Running"),
            ("b", 1, "Running"),
            ("c", 1, "Running"),
            ("c", 6, "Restarting"),
        ]
    ]
    assert running_since(entries) == {"a": 1, "b": 1}
    assert running_since(entries, after=4) == {"a": 8}


def test_the_audit_policy_keeps_only_bodies_of_status_patches():
    rules = audit.policy("operator", ["baseline"])["rules"]
    bodies = [rule for rule in rules if rule["level"] not in ("None", "Metadata")]
    assert [rule["users"] for rule in bodies] == [["operator"]]
    assert rules[-1] == {"level": "Metadata"}
