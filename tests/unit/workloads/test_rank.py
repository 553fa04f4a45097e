from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from convoy_workloads.launcher.output import TAIL
from convoy_workloads.launcher.process_tree import ProcessTree
from convoy_workloads.launcher.rank import EXITED, RUNNING, Rank
from convoy_workloads.runtime.heartbeat import FINISHED, STARTED, STEPPING, Heartbeat

NOBODY = 999_999_999
"""A number larger than any process id."""
DUMP = (
    "Fatal Python error: Aborted\n\n"
    "Thread 0x00007f01 (most recent call first):\n"
    + '  File "/usr/lib/python3.11/threading.py", line 327 in wait\n'
    * 60
    + "\nCurrent thread 0x00007f02 (most recent call first):\n"
    '  File "/scripts/train.py", line 7 in evaluate\n'
    + '  File "/scripts/train.py", line 9 in deeper\n' * 60
    + "\nExtension modules: "
    + "numpy.random._common, " * 100
    + "(total: 100)\n"
)


@pytest.fixture
def rank() -> Iterator[Rank]:
    one = Rank(1, 3, "")
    one.pid, one.state = NOBODY, RUNNING
    yield one


def test_a_rank_receives_one_request_to_terminate(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[ProcessTree] = []

    def terminate(group: ProcessTree) -> None:
        requests.append(group)

    monkeypatch.setattr(ProcessTree, "terminate", terminate)
    Rank(1, 0, "").terminate()
    rank.terminate()
    rank.terminate()
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("pulse", "leaving", "message"),
    [
        (Heartbeat(STEPPING, 0.0, 41), False, "no step for 11 s after step 41"),
        (Heartbeat(FINISHED, 0.0, 41), False, "has not ended 11 s after its last step, 41"),
        (Heartbeat(STARTED, 0.0), False, ""),
        (Heartbeat(STEPPING, 2.0, 41), False, ""),
        (Heartbeat(STEPPING, 0.0, 41), True, ""),
        (Heartbeat(FINISHED, 0.0, 41), True, ""),
    ],
)
def test_the_watchdog_covers_steps_and_shutdown_but_no_terminating_rank(
    rank: Rank, pulse: Heartbeat, leaving: bool, message: str
) -> None:
    if leaving:
        rank.terminate()
    assert rank.abort_if_hung(pulse, 11.0, 10.0) is bool(message)
    assert (rank.hung, rank.message) == (bool(message), message)


@pytest.mark.parametrize(
    ("status", "exit_code", "number"),
    [(6, 134, 6), (134 << 8, 134, 6), (0, 134, 6), (9, 137, 9), (3 << 8, 3, 0)],
    ids=["aborted", "a shell's word for that", "a shell that goes on", "killed", "another end"],
)
async def test_a_hung_rank_reports_a_signal_whether_or_not_a_wrapper_encloses_the_rank(
    rank: Rank, status: int, exit_code: int, number: int
) -> None:
    rank.abort_if_hung(Heartbeat(STEPPING, 0.0, 41), 11.0, 10.0)
    rank.record_exit(status)
    report = rank.report()
    assert (report["state"], report["hung"]) == (EXITED, True)
    assert (report["exitCode"], report["signal"]) == (exit_code, number)


async def test_the_report_of_a_hang_has_the_innermost_call_of_a_long_dump(rank: Rank) -> None:
    rank.abort_if_hung(Heartbeat(STEPPING, 0.0, 41), 11.0, 10.0)
    rank._streams.tail.feed(DUMP.encode())
    rank.record_exit(signal.SIGABRT)
    message, heading, innermost, *_ = rank.report()["stderr"].splitlines()
    assert message == "no step for 11 s after step 41; its main thread is at /scripts/train.py:7 in evaluate"
    assert heading.startswith("Current thread") and innermost.endswith("line 7 in evaluate")
    assert len(rank.report()["stderr"].encode()) <= TAIL


def test_a_rank_that_finishes_or_resumes_has_a_changed_report(rank: Rank) -> None:
    changed = []
    for finished_ms in (0, 90, 90, 0, 95):
        changed.append(rank.record_finish(Heartbeat(finished_ms=finished_ms)))
        assert rank.report()["finishedMs"] == finished_ms
    assert changed == [False, True, False, True, True]
