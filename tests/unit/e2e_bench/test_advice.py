"""Tests of the bench of advice: its readers read the same, and its counts come from the audit log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from e2e.bench.advice import files, readers, sweep
from e2e.bench.advice.sweep import RUNS, Start
from e2e.bench.rig.audit import Entry
from e2e.bench.rig.plane import OPERATOR_USER
from e2e.cluster.progress import Progress

from convoy_crds.experiment import Experiment
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.bench.comparison import broken
from convoy_workloads.bench.figures import Figures


def test_all_readers_read_all_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "SMALL", (30, 700))
    monkeypatch.setattr(files, "LARGE", (3, 5000))
    monkeypatch.setattr(files, "ROUNDS", 2)
    monkeypatch.setattr(files, "installed", lambda _: None)
    monkeypatch.setattr(files, "_can_drop", lambda: False)
    monkeypatch.setattr(files.files, "cache_root", lambda: tmp_path)
    found = Figures()
    files.add(found, Progress())
    equalities = [row for row in found.rows() if row["metric"].startswith("equality: ")]
    assert [row["met"] for row in equalities] == [True] * 4
    reasons = [row["kind"] for row in found.rows() if row["kind"].startswith("not measured")]
    assert len(reasons) == 3
    assert not list((tmp_path / "bench").iterdir())


def test_a_reader_that_loses_a_file_is_found(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_bytes(path.name.encode())
    comparison = files.Comparison(
        "x", {"loose files": readers.loose(paths), "some": readers.loose(paths[:1])}, {}
    )
    found = Figures()
    files._compare(found, comparison)
    assert broken(found) == ["equality: x: all readers read the same"]


def test_the_sweep_runs_the_same_jobs_as_the_loop() -> None:
    experiment = Experiment.model_validate(sweep.sweep())
    assert experiment.spec.sweep is not None
    swept = experiment.spec.sweep.parameters[0]
    assert swept.values == [sweep._params(number)["learning_rate"] for number in range(RUNS)]
    assert len(set(swept.values)) == RUNS
    template = experiment.spec.arms[0].template
    assert template is not None
    TrainingJob.model_validate({"metadata": {"name": "x"}, "spec": template.spec})


def entry(user: str, verb: str, resource: str, at: float, **more: Any) -> Entry:
    made = Entry(user, verb, resource, "", "bench", "x", 200, at, at + 0.1)
    return replace(made, **more)


def test_a_start_lasts_from_the_first_request_of_the_user_to_the_last_running_job() -> None:
    entries = [
        entry("admin", "create", "trainingjobs", 100.0),
        entry("admin", "create", "trainingjobs", 101.0),
        entry("admin", "patch", "pods", 101.0),
        entry(OPERATOR_USER, "create", "pods", 102.0),
        entry(OPERATOR_USER, "get", "pods", 102.0),
    ]
    entries += [
        entry(
            OPERATOR_USER, "patch", "trainingjobs", at, subresource="status", name=name,
            body={"status": {"phase": phase}},
        )
        for name, at, phase in (("a", 103.0, "Running"), ("b", 104.9, "Running"), ("p", 105.0, "Succeeded"))
    ]  # fmt: skip
    found = sweep.start_of(entries, {"TrainingJob": 2})
    assert found.seconds == pytest.approx(5.0)
    assert (found.user_requests, found.operator_requests, found.operator_writes) == (2, 5, 4)


def start(seconds: float, requests: int) -> Start:
    return Start(seconds, requests, 50, 40, {"Experiment": int(requests == 1), "TrainingJob": 21, "Pod": 21})


def test_rows_compare_the_sweep_with_the_loop() -> None:
    found = Figures()
    loop = [start(2.0, RUNS)] * 3
    sweep.add_rows(found, {sweep._SWEEP: [start(3.0, 1)] * 3, sweep._LOOP: loop, sweep._AGAIN: loop})
    rows = {row["metric"]: row for row in found.rows()}
    requests = rows[f"{sweep._TITLE}: requests of the user, one Experiment"]
    assert (requests["value"], requests["baseline"], requests["met"]) == (1, RUNS, True)
    ratio = rows[
        f"{sweep._TITLE}: time until all runs have started, one Experiment over a loop of {RUNS} TrainingJobs"
    ]
    assert (ratio["value"], ratio["met"]) == (1.5, False)
    assert not broken(found)


@pytest.mark.parametrize(
    ("job", "phase", "expected"),
    [
        ("sweep-1-plan-1", "Running", True),
        ("sweep-1-plan-1", "Succeeded", False),
        ("run-1", "Running", False),
    ],
)
def test_pods_that_write_plans_are_recognized(job: str, phase: str, expected: bool) -> None:
    pod = {"metadata": {"labels": {"convoy.dev/job": job}}, "status": {"phase": phase}}
    assert sweep.writes_plan(pod) is expected
