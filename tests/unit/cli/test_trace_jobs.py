"""Tests of `convoy trace record` and `convoy trace fetch`, which use the traces of a job."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.fake_client import client
from tests.unit.cli.saved_job import SavedJobStore, job
from typer.testing import CliRunner, Result

from convoy.cli.__main__ import app
from convoy.cli.trace import fetch, record
from convoy.client import Refused
from convoy.client.traces import TraceRequest, refusal, traced
from convoy_agents.tiercheck.stores.store import Store
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_trace import TraceState, TraceStatus

DATA = [b"trace of rank 0", b"trace of rank 1"]
FILES = [
    {
        "rank": rank,
        "file": f"traces/trace-3.{rank}.et",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "nodes": 7,
        "commBytesPerStep": 80,
        "exposedCommunicationRatio": 0.25,
    }
    for rank, data in enumerate(DATA)
]
STORED = {"recording": 3, "state": "Stored", "requestId": "a", "store": "s3", "ranks": [0, 1], "files": FILES}


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["trace", *map(str, words)])


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SavedJobStore:
    """Return a job whose traces are in a store on a volume."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = SavedJobStore(Volume(disk), {"volume": {"claimName": "shared"}}, monkeypatch)
    made.cluster.about = job(tiers={}, trace=STORED)
    monkeypatch.setattr(fetch, "connect", lambda *_: made.cluster)
    for rank, data in enumerate(DATA):
        Store(Volume(disk), "team", "uid-1").put_trace(f"trace-3.{rank}.et", data)
    return made


def test_traces_are_fetched_and_checked(saved: SavedJobStore, tmp_path: Path) -> None:
    disk, out = tmp_path / "disk", tmp_path / "out"
    done = run("fetch", "job", "--folder", disk, "--out", out)
    assert done.exit_code == 0, done.output
    assert [(out / f"trace-3.{rank}.et").read_bytes() for rank in (0, 1)] == DATA
    assert done.output.splitlines()[0] == f"{out}/trace-3.0.et: 7 nodes, 15 bytes"


def test_straggler_of_a_recording_is_named(saved: SavedJobStore, tmp_path: Path) -> None:
    slow = {"rank": 1, "node": "n2", "cause": "Compute", "sinceStep": 40}
    saved.cluster.about = job(tiers={}, trace={**STORED, "straggler": slow})
    done = run("fetch", "job", "--folder", tmp_path / "disk", "--out", tmp_path / "out")
    assert done.output.splitlines()[-1] == "rank 1 on n2 is the straggler: Compute since step 40"


@pytest.mark.parametrize("damage", [b"other", None])
def test_damaged_or_missing_trace_fails(saved: SavedJobStore, tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "disk" / "team" / "uid-1" / "traces" / "trace-3.1.et"
    path.write_bytes(damage) if damage else path.unlink()
    done = run("fetch", "job", "--folder", tmp_path / "disk", "--out", tmp_path / "out")
    assert done.exit_code == 1 and "trace-3.1.et" in done.output
    assert not (tmp_path / "out" / "trace-3.1.et").exists()


def test_status_cannot_name_other_objects_or_files(saved: SavedJobStore, tmp_path: Path) -> None:
    saved.cluster.about = job(tiers={}, trace={**STORED, "files": [{**FILES[0], "file": "traces/../keys"}]})
    done = run("fetch", "job", "--folder", tmp_path / "disk", "--out", tmp_path / "out")
    assert done.exit_code == 1 and "'keys' is not the name of a trace" in done.output


def test_job_without_a_trace_says_how_to_record_one(saved: SavedJobStore, tmp_path: Path) -> None:
    saved.cluster.about = job(tiers={})
    done = run("fetch", "job", "--folder", tmp_path)
    assert done.exit_code == 1 and "convoy trace record job" in done.output


class Jobs:
    def __init__(self, **status: Any) -> None:
        self.status = TraceStatus.model_validate({**STORED, **status})
        self.asked: list[TraceRequest] = []

    def record_trace(self, name: str, request: TraceRequest, timeout: float, notify: Any) -> TraceStatus:
        self.asked.append(request)
        notify("recording")
        return self.status


def test_record_prints_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs()
    monkeypatch.setattr(record, "connect", lambda *_: client(training=jobs))
    done = run("record", "job", "--steps", 4, "--ranks", "0,1", "--store", "s3")
    assert done.exit_code == 0, done.output
    assert jobs.asked == [TraceRequest(4, None, [0, 1], "s3")]
    assert "traces/trace-3.1.et" in done.output and "25.0%" in done.output
    assert done.output.splitlines()[-1] == "fetch them: convoy trace fetch job"


def test_failed_recording_is_a_failure_that_shows_the_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(state="Failed", message="rank 1: the disk is full", files=FILES[:1])
    monkeypatch.setattr(record, "connect", lambda *_: client(training=jobs))
    done = run("record", "job")
    assert done.exit_code == 1
    assert "trace-3.0.et" in done.output and "error: rank 1: the disk is full" in done.output


@pytest.mark.parametrize("ranks", ["", "a", "1,1", "-1", "1,", ",".join(map(str, range(65)))])
def test_malformed_ranks_are_refused(ranks: str) -> None:
    done = run("record", "job", f"--ranks={ranks}")
    assert done.exit_code == 1 and "--ranks" in done.output


def test_request_replaces_earlier_steps_and_keeps_the_rest() -> None:
    assert TraceRequest(3).patch("a") == {
        "spec": {"trace": {"steps": {"count": 3, "first": None}, "ranks": None, "requestId": "a"}}
    }
    assert TraceRequest(3, 9, [1], "s").patch("a")["spec"]["trace"]["store"] == "s"


def state(**fields: Any) -> TrainingJob:
    """Return a job in a state of its recording."""
    conditions = [
        {"type": "TraceRecorded", "status": "False", "message": "no such rank", **one}
        for one in fields.pop("conditions", [])
    ]
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    return job(tiers={}, **fields, conditions=[{**one, **times} for one in conditions])


def test_wait_ends_with_its_own_recording() -> None:
    told: list[str] = []
    goal = traced("a", told.append)
    other = {**STORED, "requestId": "other"}
    running = {**STORED, "state": "Recording", "firstStep": 5, "lastStep": 6, "files": FILES[:1]}
    assert not goal.reached(state(trace=other))
    assert not goal.reached(state(trace=running))
    assert not goal.reached(state(trace=running))
    assert goal.reached(state(trace={**STORED, "message": "done"}))
    assert told == [
        "the operator has not handled the request yet",
        "recording steps 5 to 6: 1 of 2 ranks have stored them",
        "done",
    ]
    assert goal.reached(state(trace={**STORED, "state": TraceState.FAILED.value}))


def test_wait_ends_if_the_request_is_refused_or_the_job_ends() -> None:
    goal = traced("a", lambda _: None)
    with pytest.raises(Refused, match="no such rank"):
        goal.reached(state(conditions=[{"reason": "TraceRanksUnknown"}]))
    with pytest.raises(Refused, match="has ended"):
        goal.reached(state(phase="Succeeded"))
    assert refusal(state()) == ""
