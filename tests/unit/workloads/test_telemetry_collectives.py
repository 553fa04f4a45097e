"""Who was held up by which communicator, with groups that answer as torch's do: on a device, and at once."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_workloads.runtime.telemetry import collectives
from convoy_workloads.runtime.telemetry.collectives import Collectives, DeviceTimes
from convoy_workloads.runtime.telemetry.communicators import Communicator
from convoy_workloads.runtime.telemetry.recorder import Recorder

DP = Communicator("dp", "0-3")


class Stream:
    """A device's: it comes as far as it is let."""

    def __init__(self) -> None:
        self.now = 0.0
        self.passed = -1.0

    def mark(self) -> Mark:
        return Mark(self, self.now)


class Mark:
    def __init__(self, stream: Stream, at: float) -> None:
        self._stream, self.at = stream, at

    def query(self) -> bool:
        return self.at <= self._stream.passed

    def elapsed_time(self, end_event: Any, /) -> float:
        return 1000.0 * float(end_event.at - self.at)


class Tensor:
    nbytes = 400

    def __init__(self, device: str) -> None:
        self.device = type("Device", (), {"type": device})()


class Run:
    """A recorder, and classes in place of torch's whose calls take the time they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: bool = True) -> None:
        self.now, self.told, self.stream = 100.0, [], Stream()
        self.recorder = Recorder(lambda: self.now)
        self.recorder.tell = self.told.append
        run = self

        class Work:
            def wait(self) -> bool:
                run.now += 0.25
                run.stream.now += 0.5
                return True

        class Group:
            group_desc = "mesh_dp"

            def allreduce(self, tensors: Any) -> Any:
                if answers:
                    return Work()
                run.now += 0.125
                return None

            def send(self, tensors: Any) -> Any:
                return Work()

        self.group = Group()
        self.collectives = Collectives(self.recorder, DeviceTimes(self.stream.mark), lambda: self.now)
        monkeypatch.setattr(self.collectives, "communicator", lambda group: DP)
        self.collectives.watch(Group, Work)
        self.recorder.collect = self.collectives.collect
        self.recorder.step(1)

    def step(self, number: int) -> dict[str, Any]:
        self.now += 1.0
        self.recorder.step(number)
        found: dict[str, Any] = self.told[-1]
        return found


def said(seconds: float, count: int = 1) -> list[dict[str, Any]]:
    return [{"kind": "dp", "members": "0-3", "bytes": 400 * count, "count": count, "seconds": seconds}]


def test_the_caller_is_held_up_until_its_wait_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    for _ in range(2):
        assert run.group.allreduce([Tensor("cpu")]).wait()
    found = run.step(2)
    assert (found["wait"], found["collectives"]) == (0.5, said(0.5, count=2))
    assert "collectives" not in run.step(3)


def test_a_call_that_answers_only_when_it_is_over_is_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, answers=False)
    assert run.group.allreduce([Tensor("cpu")]) is None
    found = run.step(2)
    assert (found["wait"], found["collectives"]) == (0.125, said(0.125))


def test_a_message_to_one_rank_is_waited_for_and_tells_of_no_transfer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(monkeypatch)
    run.group.send([Tensor("cpu")]).wait()
    found = run.step(2)
    assert found["wait"] == 0.25 and "collectives" not in found


def test_a_device_tells_later_how_long_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.group.allreduce([Tensor("cuda")]).wait()
    assert "wait" not in run.step(2), "the device has not come so far"
    run.stream.passed = 10.0
    found = run.step(3)
    assert (found["wait"], found["collectives"]) == (0.5, said(0.5))


def test_what_a_device_never_tells_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "MAX_PENDING", 3)
    run = Run(monkeypatch)
    for _ in range(5):
        run.group.allreduce([Tensor("cuda")]).wait()
    run.stream.passed = 10.0
    assert run.step(2)["collectives"] == said(1.5, count=3)


def test_the_largest_argument_is_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    call = run.collectives._call(run.group, ([[Tensor("cpu")] * 4], [Tensor("cpu")], 7), mutual=True)
    assert (call.bytes, call.on_device) == (1600, False)


def test_nothing_is_noted_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.recorder.tell = None
    monkeypatch.setattr(run.collectives, "communicator", lambda group: pytest.fail("asked"))
    assert run.group.allreduce([Tensor("cpu")]).wait()
