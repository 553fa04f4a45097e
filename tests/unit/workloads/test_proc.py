"""Tests of reading real processes in /proc of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from convoy_workloads.launcher import proc

PROGRAM = (
    "import os, signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: None)\n"
    "print('up', flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"COLOUR": "red"},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_a_process_is_read_from_proc(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None and child.stdout is not None
    pid = child.pid
    process = proc.scan()[pid]
    assert (process.parent, process.group, process.session) == (os.getpid(), pid, pid)
    assert pid in proc.descendants(proc.scan(), os.getpid())
    assert proc.arguments(pid)[1:] == (b"-I", b"-S", b"-c", PROGRAM.encode())
    assert proc.program(pid).startswith("python")
    assert proc.environment(pid) == (b"COLOUR=red",)
    assert proc.handles(pid, signal.SIGTERM) and not proc.handles(pid, signal.SIGUSR1)
    assert proc.cgroup(pid) == proc.cgroup(os.getpid())
    ends = [str(Path(f"/proc/self/fd/{pipe.fileno()}").readlink()) for pipe in (child.stdin, child.stdout)]
    assert proc.read_pipe(pid) == ends[0]
    assert proc.written_pipes(pid) == {ends[1]}


def test_only_its_collector_sees_a_zombie(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid not in proc.scan()
    assert proc.scan(collector=os.getpid())[child.pid].state == "Z"


def test_a_missing_process_has_no_entry() -> None:
    nobody = 999_999_999
    assert proc.environment(nobody) == proc.arguments(nobody) == (b"",)
    assert (proc.program(nobody), proc.cgroup(nobody), proc.read_pipe(nobody)) == ("", "", "")
    assert not proc.written_pipes(nobody) and not proc.handles(nobody, signal.SIGTERM)
    assert proc.scan("/nowhere") == {}
