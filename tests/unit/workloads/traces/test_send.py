"""Tests of the process that converts a recording and sends the trace, against a fake agent."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.traces.build import FIXTURES

from convoy_workloads.runtime.frames import Decoder, encode
from convoy_workloads.runtime.trace_protocol import REPORTED, STORED, UNREPORTED
from convoy_workloads.traces import memory, send
from convoy_workloads.traces.memory import BASE_BYTES, FACTOR, TooLittleMemory, free_bytes, limit_memory

Answer = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
"""Returns the agent's answers to a frame."""
WAIT = {"type": "wait"}


class Agent:
    """An agent that answers each frame as a test says, and keeps all frames."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frames: list[dict[str, Any]] = []
        self.answer: Answer = store
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        decoder = Decoder()
        while data := connection.recv(65536):
            for frame in decoder.feed(data):
                self.frames.append(frame)
                answers = self.answer(frame)
                try:
                    for one in answers:
                        connection.sendall(encode(one))
                except OSError:
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def failures(self) -> list[tuple[str, str]]:
        return [(one["failure"], one["message"]) for one in self.frames if one["type"] == "traceFailed"]


def store(frame: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer as an agent that stores the file, which has more than one part only if it is large."""
    answers = {"traceFile": [WAIT, {"type": "send"}], "traceFailed": [{"type": "noted"}]}
    if frame["type"] == "part":
        return [WAIT, {"type": "stored"}] if len(frame["data"]) < 4 * send.PART_BYTES // 3 else []
    return answers.get(frame["type"], [])


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "agent.sock")
    yield made
    made.close()


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(send, "prefer_to_kill", lambda: None)
    monkeypatch.setattr(send, "limit_memory", lambda _: None)
    monkeypatch.setattr(send, "PAUSES", (0.001, 0.001))
    folder = tmp_path / "recording"
    folder.mkdir()
    for kind in ("host", "kineto"):
        data = gzip.decompress((FIXTURES / "collectives" / f"{kind}.0.json.gz").read_bytes())
        (folder / f"{kind}.0.json").write_bytes(data)
    return {
        "folder": str(folder), "socket": str(tmp_path / "agent.sock"), "incarnation": 1, "rank": 0,
        "recording": 3, "attempt": 1, "maxBytes": 2**20, "ownGroup": "",
    }  # fmt: skip


def run(task: dict[str, Any]) -> int:
    code = send.main([json.dumps(task)])
    assert not Path(task["folder"]).exists()
    return code


def test_trace_is_stored(agent: Agent, task: dict[str, Any]) -> None:
    assert run(task) == STORED
    assert [one["type"] for one in agent.frames] == ["hello", "traceFile", "part"]
    assert not agent.failures()


def answering(kind: str, *answers: dict[str, Any]) -> Answer:
    """Answer frames of one type in another way than `store`."""
    return lambda frame: list(answers) if frame["type"] == kind else store(frame)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answering("traceFile", {"type": "refused", "why": "the recording is over"}), "recording is over"),
        (answering("traceFile", {"type": "noted"}), "refuses it: noted"),
        (answering("part", {"type": "refused", "why": "meanwhile"}), "refuses it: meanwhile"),
        (answering("part", {"type": "failed", "why": "no such bucket"}), "no such bucket"),
        (answering("part", {"type": "failed", "why": "no route", "retry": True}), "no route"),
    ],
)
def test_refusals_of_the_agent_are_reported_to_it(
    agent: Agent, task: dict[str, Any], answer: Answer, why: str
) -> None:
    agent.answer = answer
    assert run(task) == REPORTED
    ((failure, message),) = agent.failures()
    assert failure == "NOT_STORED" and why in message


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), KeyError("x"), OSError("disk")])
def test_any_error_is_reported(
    agent: Agent, task: dict[str, Any], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(send, "convert", broken)
    assert run(task) == REPORTED
    ((failure, message),) = agent.failures()
    assert failure == "NOT_RECORDED" and (str(error) or type(error).__name__) in message


def test_damaged_recording_and_large_trace_are_reported(agent: Agent, task: dict[str, Any]) -> None:
    Path(task["folder"], "host.0.json").write_text("{")
    assert run(task) == REPORTED
    assert [one for one, _ in agent.failures()] == ["NOT_RECORDED"]


def test_trace_beyond_its_budget_is_reported(agent: Agent, task: dict[str, Any]) -> None:
    assert run({**task, "maxBytes": 1000}) == REPORTED
    ((failure, message),) = agent.failures()
    assert failure == "TOO_LARGE" and "the budget is 1000" in message


def test_exit_code_says_that_nobody_knows_of_the_failure(task: dict[str, Any]) -> None:
    assert run(task) == UNREPORTED  # there is no agent


def test_agent_that_only_lets_wait_does_not_hold_the_sender(
    agent: Agent, task: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent repeats `wait` until the sender disconnects."""
    monkeypatch.setattr(send, "SECONDS", 0.2)
    agent.answer = lambda frame: itertools.repeat(WAIT) if frame["type"] == "traceFile" else store(frame)
    assert run(task) == REPORTED
    ((failure, message),) = agent.failures()
    assert failure == "NOT_STORED" and "does not respond" in message


def cgroup(folder: Path, most: str, used: int, inactive: int) -> Path:
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")
    return folder


def test_free_memory_of_a_pod(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None
    assert free_bytes(cgroup(tmp_path, "1000", 700, 100)) == 400
    assert free_bytes(cgroup(tmp_path, "max", 700, 100)) is None


def test_conversion_for_which_the_pod_has_no_memory_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []
    monkeypatch.setattr(memory.resource, "setrlimit", lambda _, pair: limits.append(pair[0]))
    needed = FACTOR * 1000 + BASE_BYTES
    with pytest.raises(TooLittleMemory, match="64 MiB of memory, and the pod has 63 MiB left"):
        limit_memory(1000, cgroup(tmp_path, str(needed), 2**20, 0))
    assert not limits
    limit_memory(1000, cgroup(tmp_path, str(needed), 2**20, 2**20))
    assert limits and needed < limits[0]


def test_a_converter_without_memory_ends_itself_alone(agent: Agent, task: dict[str, Any]) -> None:
    """Its conversion takes much more memory than it may. The score of the training is untouched."""
    code = (
        "import sys; from convoy_workloads.traces import send\n"
        "send.convert = lambda *_: bytearray(2**30)\n"
        "code = send.main(sys.argv[1:])\n"
        "print(open('/proc/self/oom_score_adj').read().strip())\n"
        "sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(task)],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == REPORTED, done.stderr
    assert agent.failures() == [("NOT_RECORDED", "the conversion failed: MemoryError")]
    assert done.stdout.strip() == b"1000"
    assert Path("/proc/self/oom_score_adj").read_text().strip() != "1000"


def test_conversion_fits_into_the_memory_that_it_may_have(agent: Agent, task: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "convoy_workloads.traces.send", json.dumps(task)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == STORED, done.stderr
