"""Tests of the part of the runtime that records ordered steps. Its recorder is fake."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from convoy_workloads.runtime import trace_sender, tracing
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.trace_protocol import REPORTED, STORED, UNREPORTED
from convoy_workloads.runtime.tracing import OFF, StepTracer
from convoy_workloads.traces import record as recorder

ORDER = {"recording": 2, "attempt": 1, "first": 3, "count": 2, "ranks": [0, 4], "maxBytes": 1000}


class FakeRecorder:
    """Records which steps were recorded; it has files after the last one."""

    def __init__(self, steps: range, problem: str = "", too_large: bool = False) -> None:
        self.steps, self.problem, self.too_large, self.files = steps, "", too_large, ()
        self.seen: list[int] = []
        self.stopped = False
        self._problem = problem

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        self.seen.append(step)
        yield
        self.problem = self._problem
        if step == self.steps[-1] and not self.problem:
            self.files = (Path("host"),)  # type: ignore[assignment]

    def __exit__(self, *_: Any) -> None:
        self.stopped = True


class Process:
    """The process that converts and sends a trace. It ends when a test says so, or when it is killed."""

    def __init__(self, command: list[str], **_: Any) -> None:
        self.task = json.loads(command[-1])
        self._code: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.killed = False

    def end(self, code: int) -> None:
        self._code.put(code)

    def wait(self, seconds: float | None = None) -> int:
        try:
            return self._code.get(timeout=seconds)
        except queue.Empty:
            raise subprocess.TimeoutExpired("send", seconds or 0) from None

    def kill(self) -> None:
        self.killed = True
        self.end(-signal.SIGKILL)


class Rank:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trace: Any = None, **facts: Any
    ) -> None:
        self.recorders: list[FakeRecorder] = []
        self.sent: list[Process] = []
        self.reports: list[dict[str, Any]] = []

        def record(folder: Path, steps: range, **_: Any) -> FakeRecorder:
            self.recorders.append(FakeRecorder(steps, **facts))
            return self.recorders[-1]

        def popen(command: list[str], **options: Any) -> Process:
            self.sent.append(Process(command, **options))
            return self.sent[-1]

        monkeypatch.setattr(recorder, "record", record)
        monkeypatch.setattr(trace_sender.subprocess, "Popen", popen)
        monkeypatch.setattr(tracing.tempfile, "gettempdir", lambda: str(tmp_path))
        monkeypatch.setitem(sys.modules, "torch", object())
        context = RankContext(rank=0, incarnation=1, socket="s", trace=json.dumps(trace) if trace else "")
        self.tracer = StepTracer(context, lambda: "1")
        self.tracer.report = self.reports.append

    def order(self, **fields: Any) -> None:
        self.tracer.on_message(
            {"type": "trace", "order": {**ORDER, **fields} if fields != {"none": 1} else None}
        )

    def train(self, first: int, last: int) -> None:
        assert list(self.tracer.steps(range(first, last + 1))) == list(range(first, last + 1))

    @property
    def failures(self) -> list[str]:
        return [one["failure"] for one in self.reports]


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rank:
    return Rank(monkeypatch, tmp_path)


def test_nothing_happens_without_an_order(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(rank.tracer, "start_step", calls.append)
    monkeypatch.setattr(rank.tracer, "end_step", calls.append)
    rank.train(1, 1000)
    assert not calls and rank.tracer.due == OFF


def test_steps_of_the_first_order_are_recorded_and_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rank = Rank(monkeypatch, tmp_path, trace={**ORDER, "first": 1})
    rank.train(1, 9)
    assert [one.seen for one in rank.recorders] == [[1, 2]]
    (sending,) = rank.sent
    assert {name: sending.task[name] for name in ("recording", "attempt", "maxBytes", "ownGroup")} == {
        "recording": 2, "attempt": 1, "maxBytes": 1000, "ownGroup": "1",
    }  # fmt: skip
    assert Path(sending.task["folder"]).parent == tmp_path
    assert not rank.reports and rank.tracer.due == OFF


def test_order_for_a_running_rank(rank: Rank) -> None:
    rank.train(1, 2)
    rank.order(first=5)
    rank.train(3, 9)
    assert [one.seen for one in rank.recorders] == [[5, 6]]
    rank.order(first=5)
    rank.train(10, 12)
    assert len(rank.sent) == 1, "the agent repeats its order when the rank connects again"


@pytest.mark.parametrize("fields", [{"ranks": [1]}, {"ranks": None}, {"first": "x"}, {"none": 1}])
def test_order_for_other_ranks_or_a_malformed_one_is_none(rank: Rank, fields: dict[str, Any]) -> None:
    rank.order(**fields)
    rank.train(1, 9)
    assert not rank.recorders and not rank.reports and rank.tracer.due == OFF


def test_order_that_comes_too_late_is_reported(rank: Rank) -> None:
    steps = rank.tracer.steps(range(3, 9))
    next(steps)
    rank.order(first=3)
    next(steps)
    assert rank.failures == ["STEPS_PASSED"] and not rank.recorders
    assert {name: rank.reports[0][name] for name in ("recording", "attempt")} == {
        "recording": 2,
        "attempt": 1,
    }
    next(steps)
    assert len(rank.reports) == 1


def test_another_order_replaces_the_one_before(rank: Rank) -> None:
    rank.order(first=3, count=4)
    steps = rank.tracer.steps(range(3, 30))
    next(steps)
    next(steps)
    rank.order(first=8, attempt=2)
    assert [step for step, _ in zip(steps, range(8), strict=False)]
    assert [(one.seen, one.stopped) for one in rank.recorders] == [([3, 4], True), ([8, 9], False)]
    assert [one.task["attempt"] for one in rank.sent] == [2] and not rank.reports


def test_order_that_is_withdrawn_stops_the_recorder(rank: Rank) -> None:
    rank.order(first=3, count=4)
    steps = rank.tracer.steps(range(3, 30))
    next(steps)
    rank.order(none=1)
    next(steps)
    assert rank.recorders[0].stopped and not rank.sent and rank.tracer.due == OFF


@pytest.mark.parametrize(("too_large", "failure"), [(True, "TOO_LARGE"), (False, "NOT_RECORDED")])
def test_problem_of_the_recorder_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, too_large: bool, failure: str
) -> None:
    rank = Rank(monkeypatch, tmp_path, problem="why", too_large=too_large)
    rank.order(first=2)
    rank.train(1, 9)
    assert rank.failures == [failure] and rank.reports[0]["message"] == "why" and not rank.sent


def test_program_without_torch_and_old_python_are_reported(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    rank.order(first=2)
    rank.train(1, 9)
    monkeypatch.setattr(tracing, "OLDEST", (99, 0))
    rank.order(first=12)
    rank.train(10, 19)
    assert rank.failures == ["NOT_RECORDED", "NOT_RECORDED"]
    assert "PyTorch" in rank.reports[0]["message"] and "Python 99.0" in rank.reports[1]["message"]


def test_recorder_that_raises_never_ends_the_program(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: FakeRecorder, step: int) -> Any:
        @contextmanager
        def context() -> Iterator[None]:
            yield
            raise RuntimeError("kineto is confused")

        return context()

    monkeypatch.setattr(FakeRecorder, "step", broken)
    rank.order(first=2)
    rank.train(1, 9)
    assert rank.failures == ["NOT_RECORDED"] and "kineto is confused" in rank.reports[0]["message"]


def test_end_of_the_program_waits_for_the_trace_within_bounds(rank: Rank, tmp_path: Path) -> None:
    rank.order(first=2)
    rank.train(1, 3)
    waited: list[float] = []
    rank.tracer.close(0.01, waited.append)
    assert waited == [0.01] and rank.sent[0].killed
    assert rank.failures == ["NOT_STORED"] and "within" in rank.reports[0]["message"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("code", "failure", "why"),
    [
        (STORED, None, ""),
        (REPORTED, None, ""),
        (UNREPORTED, "NOT_STORED", "the agent did not respond"),
        (1, "NOT_RECORDED", "exit code 1"),
        (-signal.SIGKILL, "NOT_RECORDED", "no memory left"),
        (-signal.SIGSEGV, "NOT_RECORDED", "signal 11"),
    ],
)
def test_each_end_of_the_sender_is_reported_while_the_program_trains_on(
    rank: Rank, tmp_path: Path, code: int, failure: str | None, why: str
) -> None:
    rank.order(first=2)
    rank.train(1, 3)
    rank.sent[0].end(code)
    assert rank.tracer._sender is not None and rank.tracer._sender.wait(10)
    assert rank.failures == ([failure] if failure else [])
    assert all(why in one["message"] for one in rank.reports)
    assert not list(tmp_path.iterdir())
    rank.tracer.close(0)
    assert len(rank.reports) == (failure is not None), "once"


def test_sender_that_does_not_end_is_killed(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_sender, "SENDER_SECONDS", 0.01)
    rank.order(first=2)
    rank.train(1, 3)
    assert rank.tracer._sender is not None and rank.tracer._sender.wait(10)
    assert rank.sent[0].killed and rank.failures == ["NOT_STORED"]


def test_another_recording_ends_the_sender_of_the_one_before(rank: Rank) -> None:
    rank.order(first=2)
    rank.train(1, 3)
    rank.order(first=5, recording=3)
    rank.train(4, 6)
    assert [one.task["recording"] for one in rank.sent] == [2, 3] and rank.sent[0].killed
    assert [(one["recording"], one["failure"]) for one in rank.reports] == [(2, "NOT_STORED")]
    rank.sent[1].end(STORED)
    rank.tracer.close(10)
    assert len(rank.reports) == 1


@pytest.mark.parametrize("first", [2, 4, 70])
def test_end_of_the_program_before_the_ordered_steps_is_reported(
    rank: Rank, tmp_path: Path, first: int
) -> None:
    rank.order(first=first, count=5)
    rank.train(1, 3)
    rank.tracer.close(7.0)
    assert all(one.stopped for one in rank.recorders) and not rank.sent and not list(tmp_path.iterdir())
    assert rank.failures == ["NOT_RECORDED"]
    assert f"ended before the end of step {first + 4}" in rank.reports[0]["message"]


def test_job_that_is_interrupted_records_again_so_nothing_has_failed(rank: Rank, tmp_path: Path) -> None:
    rank.order(first=2, count=5)
    rank.train(1, 3)
    rank.tracer.close(7.0, ended=False)
    assert rank.recorders[0].stopped and not rank.sent and not rank.reports and not list(tmp_path.iterdir())
