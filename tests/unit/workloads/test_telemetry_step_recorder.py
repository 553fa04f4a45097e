from __future__ import annotations

import threading
from typing import Any

import pytest

from convoy_workloads.runtime.telemetry.position import Position
from convoy_workloads.runtime.telemetry.step_recorder import Passes, StepRecorder


class Run:
    """A recorder with a manual clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reported: list[dict[str, Any]] = []
        self.recorder = StepRecorder(lambda: self.now)
        self.recorder.send = self.reported.append

    def spend(self, kind: str, seconds: float) -> None:
        with self.recorder.spending(kind):
            self.now += seconds


def test_the_rest_of_a_step_counts_as_compute_without_a_wrapper() -> None:
    run = Run()
    run.recorder.step(1)
    for kind, seconds in (("data", 0.5), ("wait", 0.25), ("save", 0.125), ("optimizer", 1.0), ("host", 2.0)):
        run.spend(kind, seconds)
    run.now += 4.0
    run.recorder.tokens(7)
    run.recorder.step(2)
    assert run.reported == [
        {"first": 2, "last": 2, "wall": 7.875, "compute": 4.0, "optimizer": 1.0, "data": 0.5, "wait": 0.25,
         "save": 0.125, "tokens": 7}
    ]  # fmt: skip


def test_position_is_sent_with_each_window_once_it_is_found() -> None:
    run, found = Run(), iter([None, Position(1, 0)])
    run.recorder.find_position = lambda: next(found)
    for number in range(1, 5):
        run.now += 8.0
        run.recorder.step(number)
    assert [(one.get("stage"), one.get("replica")) for one in run.reported] == [(None, None), (1, 0), (1, 0)]


def test_steps_are_not_measured_without_a_receiver() -> None:
    run = Run()
    run.recorder.send = None
    for number in (1, 2, 3):
        run.spend("data", 1.0)
        run.recorder.step(number)
    run.recorder.send = run.reported.append
    run.recorder.step(4)
    run.now += 1.0
    run.recorder.step(5)
    assert [(one["first"], one["wall"], one["compute"]) for one in run.reported] == [(5, 1.0, 1.0)]


def test_work_of_another_thread_does_not_count_towards_a_step() -> None:
    run = Run()
    run.recorder.step(1)
    beside = threading.Thread(target=run.recorder.spend, args=("data", 3.0))
    beside.start()
    beside.join()
    run.now += 4.0
    run.recorder.step(2)
    assert run.reported == [{"first": 2, "last": 2, "wall": 4.0, "compute": 4.0}]


def step(run: Run, number: int, micro: list[float], waiting: float) -> None:
    """Run one step as under the DDP wrapper. `micro`: seconds of each pass. `waiting`: seconds of waiting
    for other ranks.

    Input is fetched before each pass, and garbage is collected during each pass.
    """
    for seconds in micro:
        run.spend("data", 0.5)
        run.recorder.forward_started()
        run.now += seconds
        run.spend("host", 0.25)
    run.now += waiting
    run.recorder.optimizer_started()
    run.spend("optimizer", 1.0)
    run.spend("save", 2.0)
    run.recorder.step(number)


def test_a_step_is_reported_after_the_wrapper_measured_its_passes() -> None:
    run = Run()
    # The time from the first forward pass to the last gradient: two passes, their garbage collection, and the
    # input of the second pass.
    run.recorder.measure = lambda began: Passes(compute=1.0 + 2.0 + 2 * 0.25 + 0.5, wait=3.0)
    run.recorder.step(1)
    step(run, 2, [1.0, 2.0], 3.0)
    assert run.reported == []
    step(run, 3, [1.0, 2.0], 3.0)
    assert run.reported == [
        {"first": 2, "last": 2, "wall": 10.5, "compute": 3.0, "optimizer": 1.0, "data": 1.0, "wait": 3.0,
         "save": 2.0, "micro": [1.0, 2.0]}
    ]  # fmt: skip


def test_the_wrapper_receives_the_start_of_the_measured_passes() -> None:
    run, began = Run(), []

    def measure(at: int) -> Passes:
        began.append(at)
        return Passes(1.0, 0.0)

    run.recorder.measure = measure
    for number in range(1, 5):
        step(run, number, [1.0], 0.0)
    assert began == sorted(set(began))
    assert len(began) == 2


@pytest.mark.parametrize("fault", ["unknown", "no pass", "gap"])
def test_a_step_that_cannot_be_measured_is_omitted(fault: str) -> None:
    run = Run()
    run.recorder.measure = lambda _: Passes(1.25, 0.0)
    run.recorder.step(1)
    for number in (2, 3):
        step(run, number, [1.0], 0.0)
    reported = len(run.reported)
    if fault == "unknown":
        run.recorder.measure = lambda _: None
        step(run, 4, [1.0], 0.0)
    elif fault == "no pass":
        step(run, 4, [], 0.0)
        reported += 1  # Step 3 is reported now, because its passes are known. Step 4 has no pass.
        step(run, 5, [1.0], 0.0)
    else:
        step(run, 9, [1.0], 0.0)
    assert len(run.reported) == reported
