"""Tests of the kernel's out-of-memory killer, in a container with this machine's cgroup version."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import PYTHON, Agent, Launcher

Launch = Callable[..., Launcher]

LIMIT = 150 * 1024 * 1024
ROOT = Path("/sys/fs/cgroup")

EATS = "import signal, time\nbytearray(600 * 1024 * 1024)\n"
WAITS = "import time\nwhile True: time.sleep(0.1)\n"
HAS_A_CHILD = """
import subprocess, sys
code = subprocess.run([sys.executable, "-c", "bytearray(600 * 1024 * 1024)"]).returncode
raise RuntimeError(f"the worker ended with {code}")
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Path]:
    """An interpreter whose processes may use at most 150 MB together. Skips the test if no cgroup can be
    created.
    """
    v1 = (ROOT / "memory" / "memory.limit_in_bytes").exists()
    group = (ROOT / "memory" if v1 else ROOT) / f"convoy-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(LIMIT))
        if not v1:
            (group / "memory.swap.max").write_text("0")
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    wrapper = tmp_path / "contained"
    wrapper.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs && exec {PYTHON} "$@"\n')
    wrapper.chmod(0o755)
    yield wrapper
    deadline = time.monotonic() + 10
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            assert time.monotonic() < deadline
            for pid in (group / "cgroup.procs").read_text().split():
                # The process may already have ended together with another process of the cgroup.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)


def program(tmp_path: Path, *of_ranks: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(f"import os\nexec({list(of_ranks)!r}[int(os.environ['RANK'])])\n")
    return ["python", str(path)]


async def test_an_oom_kill_is_attributed_to_the_rank_and_not_to_its_neighbour(
    agent: Agent, launch: Launch, tmp_path: Path, container: Path
) -> None:
    launcher = launch(python=str(container))
    await agent.receives(lambda m: m["type"] == "hello")
    command = program(tmp_path, EATS, WAITS)
    await agent.form(command)
    report = await agent.receives_exit(0)
    assert (report["signal"], report["oom"]) == (signal.SIGKILL, True)
    # In incarnation 2 the same rank is killed again. Rank 1 of incarnation 1 is killed by the launcher, so it
    # is not reported as out of memory.
    await agent.form(command, incarnation=2)
    report = await agent.receives_exit(1)
    assert (report["signal"], report["oom"]) == (signal.SIGKILL, False)
    report = await agent.receives_exit(0, 2)
    assert (report["signal"], report["oom"]) == (signal.SIGKILL, True)
    assert launcher.process.poll() is None


async def test_an_oom_kill_of_a_worker_is_attributed_to_its_rank(
    agent: Agent, launch: Launch, tmp_path: Path, container: Path
) -> None:
    launch(python=str(container))
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(program(tmp_path, HAS_A_CHILD), ranks=1)
    report = await agent.receives_exit(0)
    assert (report["exitCode"], report["oom"]) == (1, True)
    assert "the worker ended with -9" in report["stderr"]
