"""Tests of the measured duration of collectives: on the CPU, on a device that reports later, and after
errors.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from convoy_workloads.runtime.telemetry import collectives
from convoy_workloads.runtime.telemetry.collectives import Call, CollectiveTimer
from convoy_workloads.runtime.telemetry.communicators import Communicator
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder

DP = Communicator("dp", "0-3")


class Mark:
    def __init__(self, run: Run, at: float) -> None:
        self._run, self.at = run, at

    def query(self) -> bool:
        if self._run.fails == "query":
            raise RuntimeError("operation not permitted when stream is capturing")
        return self.at <= self._run.passed

    def elapsed_time(self, end_event: Any, /) -> float:
        return 1000.0 * float(end_event.at - self.at)


class Run:
    """A recorder, and a stand-in for torch.distributed whose calls take a given time."""

    def __init__(self, device: str | None = None) -> None:
        self.now, self.stream, self.passed, self.fails = 100.0, 0.0, -1.0, ""
        self.device, self.capturing, self.traced = device, False, False
        self.reported: list[dict[str, Any]] = []
        self.requests: list[Any] = []
        self.recorder = StepRecorder(lambda: self.now)
        self.recorder.send = self.reported.append
        self.collectives = CollectiveTimer(self.recorder, self, lambda: self.now)
        run = self

        class Module:
            @staticmethod
            def all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
                run.now += 0.25
                run.stream += 0.5
                return "work" if async_op or tensor == "later" else None

            @staticmethod
            def all_gather_into_tensor(output_tensor: Any, input_tensor: Any) -> None:
                run.module.all_gather_single(output_tensor, input_tensor)

            @staticmethod
            def all_gather_single(output_tensor: Any, input_tensor: Any) -> None:
                run.now += 0.125

            @staticmethod
            def reduce_scatter_tensor(output: Any, input: Any, group: Any = None) -> None:
                run.now += 0.125

        self.module, self.other = Module, type("Other", (), {"all_reduce": Module.all_reduce})
        self.collectives.wrap(self.module, self.other)
        self.recorder.collect = self.collectives.collect
        self.recorder.step(1)

    def compiling(self) -> bool:
        return self.traced

    def call(self, group: Any, moved: Any) -> Call | None:
        self.requests.append((group, moved))
        if self.fails == "call":
            raise KeyError(group)
        return None if moved == "small" else Call(DP, 400, self.device)

    def mark(self, device: Any) -> Mark | None:
        assert device == self.device
        return None if self.capturing else Mark(self, self.stream)

    def step(self, number: int) -> list[dict[str, Any]]:
        self.now += 1.0
        self.recorder.step(number)
        found: list[dict[str, Any]] = self.reported[-1].get("collectives", [])
        return found


def measured(seconds: float, count: int = 1) -> list[dict[str, Any]]:
    return [{"kind": "dp", "members": "0-3", "bytes": 400, "count": count, "seconds": seconds}]


def test_a_blocking_call_is_measured_until_its_return() -> None:
    run = Run()
    assert run.module.all_reduce("tensor") is None
    assert run.other.all_reduce("tensor", group="g") is None  # type: ignore[attr-defined]
    assert run.step(2) == measured(0.25, count=2)
    assert run.step(3) == []


@pytest.mark.parametrize("how", ["small", "later", "async", "nobody", "another thread"])
def test_calls_that_cannot_be_timed_are_not_reported(how: str) -> None:
    run = Run()
    if how == "async":
        assert run.module.all_reduce("tensor", async_op=True) == "work"
    elif how == "another thread":
        beside = threading.Thread(target=run.module.all_reduce, args=("tensor",))
        beside.start()
        beside.join()
    else:
        tell, run.recorder.send = run.recorder.send, None if how == "nobody" else run.recorder.send
        run.module.all_reduce(how)
        run.recorder.send = tell
    assert run.step(2) == []


def test_a_traced_call_uses_the_original_function() -> None:
    run = Run()
    run.traced = True
    run.module.all_reduce("tensor")
    assert run.requests == []


def test_arguments_are_found_by_position_and_by_name() -> None:
    run = Run()
    group = object()
    run.module.all_reduce("a", None, group)
    run.module.all_reduce(tensor="b", group="g")
    run.module.reduce_scatter_tensor("out", "c")
    run.module.reduce_scatter_tensor(output="out", input="d", group=group)
    assert run.requests == [(group, "a"), ("g", "b"), (None, "c"), (group, "d")]


def test_nested_collective_calls_are_reported_once() -> None:
    run = Run()
    run.module.all_gather_into_tensor("out", "in")
    assert run.step(2) == measured(0.125)
    assert run.requests == [(None, "out")]


def test_a_device_reports_the_duration_later() -> None:
    run = Run("cuda:1")
    run.module.all_reduce("tensor")
    assert run.step(2) == [], "the device has not come so far"
    run.passed = 10.0
    assert run.step(3) == measured(0.5)


def test_no_event_is_recorded_into_a_cuda_graph() -> None:
    run = Run("cuda:1")
    run.capturing = True
    run.module.all_reduce("tensor")
    run.passed = 10.0
    assert run.step(2) == []


def test_pending_device_measurements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "MAX_PENDING", 3)
    run = Run("cuda:1")
    for _ in range(5):
        run.module.all_reduce("tensor")
    run.passed = 10.0
    assert run.step(2) == measured(0.5, count=3)


@pytest.mark.parametrize("where", ["call", "query"])
def test_a_measurement_error_does_not_end_the_program(where: str) -> None:
    run = Run("cuda:1")
    run.fails = where
    run.module.all_reduce("tensor")
    run.passed = 10.0
    assert run.step(2) == []
    run.fails = ""
    assert run.module.all_reduce("tensor") is None
    assert run.step(3) == []


def test_an_error_of_a_collective_reaches_the_program() -> None:
    run = Run()
    with pytest.raises(TypeError):
        run.module.all_reduce()  # type: ignore[call-arg]
    assert not run.collectives.broken
