"""Tests of following the logs of several pods. Some logs start late, fail, break off or are replaced."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import count
from threading import Condition, Event

import pytest

from convoy.client import ApiError, ConvoyError, Forbidden, Refused, Unreachable
from convoy.client.log_follower import (
    BROKE_OFF_SECONDS,
    DRAIN_SECONDS,
    MAX_RETRY_SECONDS,
    OUTAGE_SECONDS,
    QUEUE_LINES,
    LogFollower,
    PodLogs,
    ReadState,
    is_unfinished,
)
from convoy.client.pod_logs import PodLog

CUT = Unreachable("cut")
NOT_YET = ApiError("waiting to start", 400)


class Pod:
    """A fake pod whose log is written by the test. Each read returns the log from its first line on."""

    def __init__(self, name: str, uid: str = "", started: bool = True) -> None:
        self.name, self.uid = name, uid or name
        self.started, self.ended, self.left = started, False, 0
        self._lines: list[str] = []
        self._faults: deque[ConvoyError | None] = deque()
        self._changed = Condition()
        self.after: Callable[[int], object] = lambda _: None
        """Function that is called after each read, with the number of reads that have ended."""

    def write(self, *texts: str) -> None:
        self.write_as(
            *(f"2026-01-01T00:00:00.{len(self._lines) + more:09}Z {text}" for more, text in enumerate(texts))
        )

    def write_as(self, *lines: str) -> None:
        """Write lines that already have a time in front."""
        with self._changed:
            self._lines += lines
            self._changed.notify_all()

    def fault(self, *errors: ConvoyError | None) -> None:
        """Set the errors of the next reads. A read returns the existing lines and then raises its error.
        For None the read ends without an error.
        """
        with self._changed:
            self._faults += errors
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def read(self) -> Iterator[str]:
        try:
            for number in count():
                if (line := self._line(number)) is None:
                    return
                yield line
        finally:
            self.left += 1
            self.after(self.left)

    def _line(self, number: int) -> str | None:
        def known() -> bool:
            return number < len(self._lines) or bool(self._faults) or self.ended

        with self._changed:
            assert self._changed.wait_for(known, timeout=30)
            if number < len(self._lines):
                return self._lines[number]
            if self._faults and (error := self._faults.popleft()):
                raise error
            return None


class FakeJob:
    """A fake job whose scans are scripted. It records the notices."""

    def __init__(self, *pods: Pod) -> None:
        self.pods, self.job_ended, self.notices = list(pods), False, list[str]()
        self.errors: deque[ConvoyError | None] = deque()
        """Errors that the next scans raise. For None the scan succeeds."""
        self.scan_hooks: deque[Callable[[], object]] = deque()
        """Functions to call during the next scans, one per scan."""
        self.ahead = self.step = 0.0
        """`ahead` is the number of seconds by which the follower's clock is ahead. Each scan adds `step`
        seconds to `ahead`.
        """
        self.on_notify: Callable[[str], object] = lambda _: None

    def scan(self) -> PodLogs:
        self.ahead += self.step
        if self.scan_hooks:
            self.scan_hooks.popleft()()
        if self.errors and (error := self.errors.popleft()):
            raise error
        logs = tuple(PodLog(pod.uid, pod.name, pod.started, pod.ended, pod.read) for pod in self.pods)
        return PodLogs(logs, self.job_ended)

    def notify(self, sentence: str) -> None:
        self.notices.append(sentence)
        self.on_notify(sentence)

    def lines(self) -> Generator[str, None, None]:
        return LogFollower(self.scan, self.notify, lambda: time.monotonic() + self.ahead, every=0.01).lines()

    def end(self) -> None:
        for pod in self.pods:
            pod.end()
        self.job_ended = True


def test_logs_are_merged_and_each_stays_in_order() -> None:
    pods = [Pod("a"), Pod("b")]
    texts = {pod.name: [f"{pod.name}{number}" for number in range(2 * QUEUE_LINES)] for pod in pods}
    for pod in pods:
        pod.write(*texts[pod.name])
    fake_job = FakeJob(*pods)
    fake_job.end()
    found = list(fake_job.lines())
    for name in "ab":
        assert [one for one in found if one[0] == name] == texts[name]
    assert fake_job.notices == []


def test_a_pod_that_waits_to_start_is_reported_once_and_then_read() -> None:
    runs, waits = Pod("a"), Pod("b", started=False)
    fake_job = FakeJob(runs, waits)
    runs.write("a0")
    waits.write("b0", "b1")

    def start() -> None:
        waits.started = True

    fake_job.scan_hooks += [lambda: None, lambda: None, lambda: None, start]
    lines = fake_job.lines()
    assert next(lines) == "a0" and fake_job.notices == [
        "not started yet: b; Convoy reads the logs when they start"
    ]
    assert [next(lines), next(lines)] == ["b0", "b1"]
    fake_job.end()
    assert list(lines) == [] and len(fake_job.notices) == 1


def test_a_job_without_pods_is_waited_for() -> None:
    fake_job = FakeJob()

    def start(_: str) -> None:
        pod = Pod("a")
        pod.write("a0")
        fake_job.pods = [pod]
        fake_job.end()

    fake_job.on_notify = start
    assert list(fake_job.lines()) == ["a0"]
    assert fake_job.notices == ["not started yet: the job's pods; Convoy reads the logs when they start"]


def test_a_failing_log_is_reported_immediately_and_retried() -> None:
    runs, fails = Pod("a"), Pod("b")
    fails.fault(NOT_YET, NOT_YET, NOT_YET)
    fake_job = FakeJob(runs, fails)
    fails.after = lambda left: fails.write("b0") if left == 3 else None
    # Pod `a` has not ended but writes no lines, so the first line is from `b`.
    lines = fake_job.lines()
    assert next(lines) == "b0"
    assert fake_job.notices == ["cannot read the log of b now, will retry: waiting to start"]
    fake_job.end()
    assert list(lines) == []


def test_a_replacement_pod_is_followed() -> None:
    first, second = Pod("a", "u1"), Pod("a", "u2")
    fake_job = FakeJob(first)
    first.write("old")
    lines = fake_job.lines()
    assert next(lines) == "old"
    second.write("new")
    fake_job.pods = [second]
    assert next(lines) == "new"
    first.write("last")
    first.end()
    assert next(lines) == "last"
    fake_job.end()
    assert list(lines) == [] and fake_job.notices == []


@pytest.mark.parametrize(("fault", "notices"), [(CUT, 1), (None, 0)])
def test_an_interrupted_log_continues_after_its_last_line(fault: ConvoyError | None, notices: int) -> None:
    pod = Pod("a")
    fake_job = FakeJob(pod)
    pod.write("0", "1")
    pod.fault(fault)
    broken = Event()
    pod.after = lambda _: broken.set()
    lines = fake_job.lines()
    assert [next(lines), next(lines)] == ["0", "1"]
    assert broken.wait(30)
    pod.write("2")
    assert next(lines) == "2" and len(fake_job.notices) == notices
    fake_job.end()
    assert list(lines) == []


def test_a_clock_that_is_set_back_hides_no_lines() -> None:
    pod = Pod("a")
    fake_job = FakeJob(pod)
    pod.write_as("2026-10-25T02:59:59.5+02:00 0", "2026-10-25T02:00:00+01:00 1", "2026-10-25T00:30:00Z 2")
    pod.fault(CUT)
    broken = Event()
    pod.after = lambda _: broken.set()
    lines = fake_job.lines()
    assert [next(lines), next(lines), next(lines)] == ["0", "1", "2"]
    assert broken.wait(30)
    pod.write_as("2026-10-25T00:30:01Z 3")
    assert next(lines) == "3"
    fake_job.end()
    assert list(lines) == []


def test_lines_from_before_the_end_of_the_job_are_read_after_it() -> None:
    pod = Pod("a")
    fake_job = FakeJob(pod)
    pod.write("0")
    lines = fake_job.lines()
    assert next(lines) == "0"
    fake_job.job_ended = True
    pod.write("1")
    assert next(lines) == "1"
    pod.write("2")
    pod.end()
    assert list(lines) == ["2"] and fake_job.notices == []


def test_read_errors_are_raised_after_the_other_logs() -> None:
    pods = [Pod(name) for name in "abc"]
    pods[1].fault(*[CUT] * 5)
    pods[2].fault(*[NOT_YET] * 5)
    pods[0].write("a0")
    fake_job = FakeJob(*pods)
    fake_job.job_ended = True
    pods[0].ended = True
    found: list[str] = []
    with pytest.raises(Unreachable, match="cut"):
        found.extend(fake_job.lines())
    assert fake_job.notices == ["cannot read the log of c: waiting to start"]
    assert [pod.left for pod in pods] == [1, 1, 1]


def test_the_log_of_a_container_that_outlives_its_job_is_abandoned() -> None:
    pod = Pod("a")
    fake_job = FakeJob(pod)
    pod.write("0")
    lines = fake_job.lines()
    assert next(lines) == "0"
    fake_job.job_ended, fake_job.step = True, DRAIN_SECONDS / 10
    assert list(lines) == []
    assert fake_job.notices == [
        f"logs still open {DRAIN_SECONDS:g} s after the end of the job, not read further: a"
    ]
    assert DRAIN_SECONDS <= fake_job.ahead < 2 * DRAIN_SECONDS


def test_scans_are_retried_while_the_server_is_unavailable() -> None:
    pod = Pod("a")
    fake_job = FakeJob(pod)
    fake_job.errors += [Unreachable("away"), ApiError("busy", 503), None, Unreachable("lost")]
    fake_job.scan_hooks += [lambda: None] * 4 + [fake_job.end]
    pod.write("0")
    assert list(fake_job.lines()) == ["0"]
    again = f"; Convoy retries for {OUTAGE_SECONDS:g} s"
    assert fake_job.notices == [f"away{again}", f"lost{again}"]


def test_retries_of_scans_are_limited() -> None:
    fake_job = FakeJob()
    fake_job.errors += [Unreachable("away")] * 20
    fake_job.step = OUTAGE_SECONDS / 10
    with pytest.raises(Unreachable, match="away"):
        next(fake_job.lines())
    assert len(fake_job.notices) == 1 and 8 <= len(fake_job.errors) <= 10


@pytest.mark.parametrize("error", [Forbidden("no", 403), ApiError("odd", 400), Refused("too many pods")])
def test_a_refused_scan_is_raised(error: ConvoyError) -> None:
    fake_job = FakeJob(Pod("a"))
    fake_job.errors += [error]
    with pytest.raises(type(error), match=str(error)):
        next(fake_job.lines())


def test_a_forbidden_log_raises_without_a_retry() -> None:
    pods = [Pod("a"), Pod("b")]
    pods[1].fault(Forbidden("you may not", 403))
    with pytest.raises(Forbidden, match="you may not"):
        next(FakeJob(*pods).lines())


def test_an_exception_of_a_reader_is_not_the_end_of_the_log() -> None:
    def broken() -> Iterator[str]:
        raise AttributeError("odd")
        yield ""

    seen = PodLogs((PodLog("u", "a", True, True, broken),), True)
    with pytest.raises(ConvoyError, match="odd"):
        next(LogFollower(lambda: seen, print, every=0.01).lines())


def test_closing_the_iterator_ends_the_readers() -> None:
    pod = Pod("a")
    fake_job = FakeJob(pod)
    pod.write(*["more"] * 3 * QUEUE_LINES)
    lines = fake_job.lines()
    left = Event()
    pod.after = lambda _: left.set()
    assert next(lines) == "more"
    lines.close()
    assert left.wait(30)


LOG = PodLog("u", "a", True, False, partial(iter, ()))
OVER = PodLog("u", "a", True, True, LOG.read)
WAITS = PodLog("u", "a", False, False, LOG.read)


@pytest.mark.parametrize(
    ("log", "reading", "job_ended", "due", "settled"),
    [
        (WAITS, ReadState("a"), False, False, True),
        (LOG, ReadState("a"), False, True, False),
        (LOG, ReadState("a", running=True), True, False, False),
        (LOG, ReadState("a", retry_at=11), False, False, False),
        (LOG, ReadState("a", retry_at=11), True, True, False),
        (LOG, ReadState("a", clean=True), False, True, False),
        (OVER, ReadState("a", clean=True), False, False, True),
        (OVER, ReadState("a", error=CUT), False, True, False),
        (OVER, ReadState("a", error=CUT, last=True), True, False, True),
        (OVER, ReadState("a", running=True, last=True), True, False, False),
    ],
)
def test_a_log_is_due_or_settled_by_its_state(
    log: PodLog, reading: ReadState, job_ended: bool, due: bool, settled: bool
) -> None:
    assert (reading.due(log, 10, job_ended), reading.settled(log)) == (due, settled)


RUNS = ReadState("a", running=True)
DONE = ReadState("a", clean=True)
FAILED = ReadState("a", error=CUT)


@pytest.mark.parametrize(
    ("logs", "readings", "at_first", "late"),
    [
        ((), {}, False, False),
        ((OVER,), {"u": DONE}, False, False),
        ((LOG,), {"u": RUNS}, True, False),
        ((LOG,), {"u": DONE}, True, False),
        ((OVER,), {"u": RUNS}, True, True),
        ((OVER,), {"u": FAILED}, True, False),
        ((), {"gone": RUNS}, True, False),
        ((OVER,), {"u": DONE, "gone": RUNS}, True, False),
    ],
)
def test_logs_to_wait_for_after_the_end_of_the_job_are_selected(
    logs: tuple[PodLog, ...], readings: dict[str, ReadState], at_first: bool, late: bool
) -> None:
    found = [is_unfinished(logs, readings, late=is_late) for is_late in (False, True)]
    assert found == [at_first, late]


@pytest.mark.parametrize(
    ("failures", "lasted", "error", "pause", "notices"),
    [
        (0, 1, None, 3, False),
        (0, 1, CUT, 6, True),
        (1, 1, CUT, 12, False),
        (10_000, 1, CUT, MAX_RETRY_SECONDS, False),
        (5, 1, None, 3, False),
        (0, BROKE_OFF_SECONDS, CUT, 3, False),
    ],
)
def test_the_pause_before_a_retry_grows_and_is_reported(
    failures: int, lasted: float, error: ConvoyError | None, pause: float, notices: bool
) -> None:
    reading = ReadState("a", started_at=100 - lasted, running=True, failures=failures)
    assert reading.end(error, 100, every=3) is notices
    assert (reading.retry_at, reading.running, reading.clean) == (100 + pause, False, error is None)
