"""Tests of the rows of the engine odb: equal samples per step, coverage, and wall times of a busy machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convoy_workloads.bench.figures import Figures
from convoy_workloads.bench.trial import Trial
from convoy_workloads.engines.odb import epoch_rows, rows
from convoy_workloads.engines.odb.bench import FIXED, ONLINE
from convoy_workloads.engines.odb.row_arms import (
    LONG,
    ORACLE,
    PACKAGE,
    WORKER,
    epoch_arms,
    equal_arms,
    worker_arms,
)


def trial(seconds: float, wall: float = 1.0, **changed: Any) -> Trial:
    result = {
        "processor_seconds": seconds,
        "seconds": wall,
        "steps": 30,
        "count": 960,
        "distinct": 960,
        "left_out": 0,
        "loss": 3.0,
        "padding": 0.1,
        "tokens": 900,
        "batches": 10,
        "samples": "a",
        "unequal": 0,
    }
    return Trial(wall, seconds, {**result, **changed})


def listed(found: Figures) -> dict[str, Any]:
    return {one["metric"]: one for one in found.rows()}


def test_arms_at_equal_samples_per_step_differ_in_their_batching_alone() -> None:
    online, fixed = equal_arms()[ONLINE], equal_arms()[FIXED]
    assert {**online["params"], "batching": "fixed"} == fixed["params"]
    assert online["target_loss"] == fixed["target_loss"]


def test_the_package_has_the_options_of_our_loader_with_a_worker() -> None:
    arms = worker_arms(Path("there"), LONG)
    assert arms[PACKAGE] == {**arms[WORKER], "package": "there"} and arms[WORKER]["params"]["workers"] == 1


def test_unequal_samples_per_step_break_the_equality() -> None:
    for count, met in ((960, True), (1247, False)):
        found = Figures()
        rows.add_equal_loss(found, {ONLINE: [trial(2.0, count=count)] * 5, FIXED: [trial(3.0)] * 5})
        row = next(one for name, one in listed(found).items() if name.startswith("equality"))
        assert row["met"] is met


def test_a_package_that_drops_documents_in_silence_is_found() -> None:
    found, samples = Figures(), LONG["samples"]
    ours = trial(9.0, count=samples - 56, distinct=samples - 56, left_out=56)
    theirs = trial(9.0, count=samples - 56, distinct=samples - 56)
    starts = {WORKER: [trial(0.3)] * 5, PACKAGE: [trial(0.9)] * 5}
    epoch_rows.add_workers(found, {WORKER: [ours] * 5, PACKAGE: [theirs] * 5}, starts)
    lost = {name: one for name, one in listed(found).items() if "documents neither used nor reported" in name}
    assert [one["value"] for one in lost.values()] == [0, 56]
    assert [one["met"] for one in lost.values()] == [True, None]
    share = [one["met"] for name, one in listed(found).items() if "time of the processes' start" in name]
    assert share == [True, False]


def test_wall_times_of_a_busy_machine_are_not_compared() -> None:
    for wall, measured in ((1.2, True), (9.0, False)):
        found = Figures()
        trials = {name: [trial(2.0, wall)] * 5 for name in epoch_arms()}
        epoch_rows.add_epoch(found, trials)
        row = listed(found)[f"odb, an epoch: wall time, times better than {FIXED}"]
        assert (row["kind"] == "measured") is measured and (row["value"] is not None) is measured


def test_the_distance_to_the_oracle_is_checked_at_the_end_of_its_interval() -> None:
    found = Figures()
    online = [trial(one) for one in (1.0, 1.1, 1.1, 1.1, 1.5)]
    trials = {**{name: [trial(1.0)] * 5 for name in epoch_arms()}, ONLINE: online}
    assert ORACLE in trials
    epoch_rows.add_epoch(found, trials)
    name = f"odb, an epoch: processor time over that of the offline oracle, {ONLINE}"
    found_rows = listed(found)
    assert found_rows[name]["met"] is True
    assert found_rows[f"{name}, upper end of the interval"]["met"] is False
