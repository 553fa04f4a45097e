"""Tests of the launcher with ranks that run small programs: starts, exits, reports and replacement."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import WORKLOADS, Agent, Launcher, until

Launch = Callable[..., Launcher]
LONG = bool(os.environ.get("CONVOY_WARM_AND_COLD"))


def script(folder: Path, source: str) -> list[str]:
    """Return a command that runs `source` in a warm rank."""
    path = folder / "program.py"
    path.write_text(source)
    return ["python", str(path)]


async def test_a_launcher_sends_hello_when_started(agent: Agent, launch: Launch) -> None:
    launcher = launch()
    hello = await agent.receives(lambda m: m["type"] == "hello")
    assert (hello["role"], hello["incarnation"], hello["pid"]) == ("launcher", 0, launcher.process.pid)


@functools.cache
def old_pythons() -> list[str]:
    """Return the oldest interpreter on this machine that is older than the current one.

    If `LONG` is set, return all older interpreters. Each interpreter is run to check that it works.
    """
    found: list[str] = []
    for minor in range(9, sys.version_info.minor):
        for name in (f"python3.{minor}", *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")):
            path = shutil.which(name)
            probe = [path or "", "-I", "-S", "-c", "import asyncio"]
            if path and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                found.append(path)
                break
        if found and not LONG:
            break
    return found


@pytest.mark.skipif(not old_pythons(), reason="no Python older than this one is installed")
async def test_the_launcher_runs_under_old_pythons(agent: Agent, launch: Launch, tmp_path: Path) -> None:
    for python in old_pythons():
        agent.clear_messages()
        launcher = launch(python=python)
        hello = await agent.receives(lambda m: m["type"] == "hello")
        assert tuple(map(int, hello["python"].split(".")[:2])) < sys.version_info[:2]
        for incarnation, command in enumerate((["true"], script(tmp_path, "print('ran')\n")), 1):
            await agent.form(command, incarnation)
            assert [(await agent.receives_exit(rank, incarnation))["exitCode"] for rank in (0, 1)] == [0, 0]
        agent.send(type="shutdown", exitCode=0)
        assert await launcher.ends() == 0


async def test_ranks_have_the_variables_that_torchrun_would_set(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch()
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR CONVOY_INCARNATION"
    source = f"import os\nprint('env', *(os.environ[n] for n in '{names}'.split()))\n"
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(script(tmp_path, source))
    assert [(await agent.receives_exit(rank))["exitCode"] for rank in (0, 1)] == [0, 0]
    assert "[1/0] env 0 2 0 2 0 127.0.0.1 1\n" in launcher.log
    assert "[1/1] env 1 2 1 2 0 127.0.0.1 1\n" in launcher.log
    agent.send(type="shutdown", exitCode=0, reason="done")
    assert await launcher.ends() == 0


async def test_a_failed_rank_is_reported_with_its_code_and_the_end_of_its_stderr(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    source = "import sys\nprint('x' * 5000, file=sys.stderr)\nraise ValueError('no such column: price')\n"
    await agent.form(script(tmp_path, source), ranks=1)
    report = await agent.receives_exit(0)
    assert (report["exitCode"], report["signal"], report["commandNotFound"]) == (1, 0, False)
    assert report["stderr"].endswith("ValueError: no such column: price")
    assert len(report["stderr"].encode()) <= 2048


async def test_a_missing_command_is_reported(agent: Agent, launch: Launch) -> None:
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["no-such-program", "--fast"], ranks=1)
    report = await agent.receives_exit(0)
    assert (report["exitCode"], report["commandNotFound"]) == (127, True)
    assert "no-such-program: command not found on PATH=" in report["stderr"]


@pytest.mark.parametrize(
    ("mode", "words"), [(0o644, "is not an executable file"), (0o755, "cannot be executed: Exec format")]
)
async def test_a_command_that_cannot_be_executed_is_reported(
    agent: Agent, launch: Launch, tmp_path: Path, mode: int, words: str
) -> None:
    program = tmp_path / "program"
    program.write_text("neither script nor binary")
    program.chmod(mode)
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form([str(program)], ranks=1)
    report = await agent.receives_exit(0)
    assert (report["exitCode"], report["commandNotFound"]) == (126, True)
    assert f"{program} {words}" in report["stderr"]


async def test_a_missing_script_ends_as_under_python(agent: Agent, launch: Launch) -> None:
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["python", "nowhere.py"], ranks=1)
    report = await agent.receives_exit(0)
    assert report["exitCode"] == 2
    assert "can't open file '" in report["stderr"] and "nowhere.py'" in report["stderr"]


async def test_a_cold_command_runs_and_its_children_die_with_it(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["bash", "-c", "sleep 1000 & echo child $!; exit 3"], ranks=1)
    report = await agent.receives_exit(0)
    assert report["exitCode"] == 3
    child = int(launcher.log.split("[1/0] child ")[1].split()[0])
    await until(lambda: not _alive(child))


async def test_a_newer_incarnation_replaces_ranks_that_ignore_sigterm(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    source = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True)\n"
        "while os.environ['CONVOY_INCARNATION'] == '1': time.sleep(0.1)\n"
    )
    await agent.form(script(tmp_path, source), ranks=1)
    await agent.receives(lambda m: m["type"] == "rank" and m["state"] == "RUNNING")
    await until(lambda: "[1/0] up" in launcher.log)
    await agent.form(script(tmp_path, source), incarnation=2, ranks=1)
    old = await agent.receives_exit(0, incarnation=1)
    assert old["signal"] == signal.SIGKILL
    assert not old["oom"]
    assert (await agent.receives_exit(0, incarnation=2))["exitCode"] == 0


async def test_an_older_assignment_is_ignored(agent: Agent, launch: Launch, tmp_path: Path) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    command = script(tmp_path, "print('ran')\n")
    await agent.form(command, incarnation=5, ranks=1)
    await agent.receives_exit(0, incarnation=5)
    agent.send(
        type="assignment", incarnation=4, slot=0, rankOffset=0, processes=1, worldSize=1,
        masterAddr="127.0.0.1", masterPort=1, command=command,
    )  # fmt: skip
    agent.send(type="shutdown", exitCode=0)
    assert await launcher.ends() == 0
    assert launcher.log.count("] ran\n") == 1
    assert not any(m.get("incarnation") == 4 for m in agent.received)


async def test_the_launcher_resends_all_reports_after_an_agent_restart(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(script(tmp_path, "raise SystemExit(9)\n"), incarnation=3, ranks=1)
    await agent.receives_exit(0, incarnation=3)
    await agent.disconnect()
    agent.received.clear()
    await agent.listen()
    report = await agent.receives_exit(0, incarnation=3)
    assert report["exitCode"] == 9
    assert [m["type"] for m in agent.received[:3]] == ["hello", "portPicked", "rank"]
    assert agent.received[0]["incarnation"] == 3
    assert launcher.process.poll() is None


async def test_a_launcher_without_an_agent_ends_with_the_worst_exit_code(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch(CONVOY_AGENT_WAIT_SECONDS="1")
    await agent.receives(lambda m: m["type"] == "hello")
    source = "import os\nraise SystemExit([0, 76, 4][int(os.environ['RANK'])])\n"
    await agent.form(script(tmp_path, source), ranks=3)
    for rank in range(3):
        await agent.receives_exit(rank)
    await agent.disconnect()
    assert await launcher.ends() == 4


async def test_sigterm_reaches_the_ranks_and_their_exit_codes_are_reported(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    source = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.1)\n"
    )
    await agent.form(script(tmp_path, source))
    await until(lambda: launcher.log.count("] up") == 2)
    launcher.signal(signal.SIGTERM)
    assert await launcher.ends() == 75
    assert (await agent.receives_exit(1))["exitCode"] == 75


async def test_a_server_goes_on_after_sigterm_while_proxies_still_send_requests(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch(CONVOY_TERM_DELAY_SECONDS="1000")
    await agent.receives(lambda m: m["type"] == "hello")
    last_request = tmp_path / "last"
    source = (
        "import os, time\n"
        "print('up', flush=True)\n"
        f"while not os.path.exists({str(last_request)!r}): time.sleep(0.1)\n"
    )
    await agent.form(script(tmp_path, source), ranks=1)
    await until(lambda: "] up" in launcher.log)
    launcher.signal(signal.SIGTERM)
    await until(lambda: "serve for another 1000 s" in launcher.log)
    last_request.touch()
    assert await launcher.ends() == 0


@pytest.mark.parametrize("terminated", [True, False], ids=["before its end", "after it"])
async def test_a_terminated_rank_with_exit_code_0_has_not_completed(
    agent: Agent, launch: Launch, tmp_path: Path, terminated: bool
) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    source = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "print('up', flush=True)\n"
        f"while {terminated}: time.sleep(0.1)\n"
    )
    await agent.form(script(tmp_path, source), ranks=1)
    await until(lambda: "] up" in launcher.log)
    if not terminated:
        await agent.receives_exit(0)
    launcher.signal(signal.SIGTERM)
    assert await launcher.ends() == (75 if terminated else 0)
    report = await agent.receives_exit(0)
    assert (report["exitCode"], report["terminationRequested"]) == (0, terminated)


async def test_a_rank_that_is_being_forked_receives_sigterm(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch(CONVOY_GRACE_SECONDS="40")
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(script(tmp_path, "import time\ntime.sleep(1000)\n"), ranks=1)
    await agent.receives(lambda m: m["type"] == "rank")
    launcher.signal(signal.SIGTERM)
    assert (await agent.receives_exit(0))["signal"] == signal.SIGTERM
    assert await launcher.ends() == 128 + signal.SIGTERM


async def test_sigterm_is_blocked_in_the_zygote_and_not_in_a_rank(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    source = (
        "import os\n"
        "for pid in (os.getppid(), os.getpid()):\n"
        "    status = open(f'/proc/{pid}/status').read()\n"
        "    print('blocked', int(status.split('SigBlk:')[1].split()[0], 16) >> 14 & 1)\n"
    )
    await agent.form(script(tmp_path, source), ranks=1)
    assert (await agent.receives_exit(0))["exitCode"] == 0
    assert [line.split()[-1] for line in launcher.log.splitlines() if "] blocked" in line] == ["1", "0"]


async def test_ranks_outlive_neither_their_launcher_nor_their_zygote(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    """If the launcher is killed, the zygote's socket closes. The zygote then ends with its warm ranks."""
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    pidfile = tmp_path / "pid"
    source = (
        f"import os, time\nopen({str(pidfile)!r} + '.new', 'w').write(str(os.getpid()))\n"
        f"os.rename({str(pidfile)!r} + '.new', {str(pidfile)!r})\n"
        "while True: time.sleep(0.05)\n"
    )
    await agent.form(script(tmp_path, source), ranks=1)
    await agent.receives(lambda m: m["type"] == "rank" and m["state"] == "RUNNING")
    await until(pidfile.exists)
    pid = int(pidfile.read_text())
    launcher.signal(signal.SIGKILL)
    await launcher.ends()
    await until(lambda: not _alive(pid))


async def test_a_warm_rank_that_hangs_is_reported_with_its_stack(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launch(torch=True)
    await agent.receives(lambda m: m["type"] == "hello")
    source = (
        "import time, torch\n"
        "weight = torch.zeros(1, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "weight.sum().backward()\n"
        "optimizer.step()\n"
        "def stuck_here():\n"
        "    while True: time.sleep(0.1)\n"
        "stuck_here()\n"
    )
    await agent.form(script(tmp_path, source), ranks=1, hangSeconds=1)
    report = await agent.receives_exit(0)
    assert report["hung"]
    assert report["signal"] == signal.SIGABRT
    assert "stuck_here" in report["stderr"]
    assert "no step for" in report["stderr"]


ONE_STEP = (
    "import threading, time, torch\n"
    "weight = torch.zeros(1, requires_grad=True)\n"
    "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
    "weight.sum().backward()\n"
    "optimizer.step()\n"
)


async def test_a_rank_behind_a_shell_that_hangs_is_reported_with_its_stack(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    source = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(WORKLOADS)!r})\n"
        "from convoy_workloads.runtime.heartbeat import HeartbeatWriter\n"
        "def stuck_here():\n"
        "    os.read(os.pipe()[0], 1)\n"
        "HeartbeatWriter(os.environ['CONVOY_HEARTBEAT']).step(7)\n"
        "stuck_here()\n"
    )
    _, path = script(tmp_path, source)
    await agent.form(["sh", "-c", f"python {path}; echo ended with $?"], ranks=1, hangSeconds=1)
    report = await agent.receives_exit(0)
    assert (report["hung"], report["exitCode"], report["signal"]) == (True, 134, signal.SIGABRT)
    assert f"s after step 7; its main thread is at {path}:5 in stuck_here" in report["stderr"]


async def test_the_time_after_the_last_step_is_bounded(agent: Agent, launch: Launch, tmp_path: Path) -> None:
    launch(torch=True)
    await agent.receives(lambda m: m["type"] == "hello")
    source = ONE_STEP + "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
    await agent.form(script(tmp_path, source), ranks=1, hangSeconds=1)
    running = await agent.receives(
        lambda m: m["type"] == "rank" and m["state"] == "RUNNING" and m["finishedMs"]
    )
    report = await agent.receives_exit(0)
    assert (report["hung"], report["signal"], report["step"]) == (True, signal.SIGABRT, 1)
    assert report["finishedMs"] == running["finishedMs"] >= report["stepMs"]
    assert "s after its last step, 1; its main thread is at " in report["stderr"]
    assert " in _shutdown" in report["stderr"]


def _alive(pid: int) -> bool:
    """Return True if the process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(("code", "found"), [(0, '{"accuracy":0.5}'), (3, "")])
async def test_the_result_of_rank_0_is_reported_if_it_ends_well(
    agent: Agent, launch: Launch, tmp_path: Path, code: int, found: str
) -> None:
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    source = (
        "import convoy, sys\n"
        "with convoy.join() as job:\n"
        "    job.set_result({'accuracy': 0.5 + job.rank})\n"
        f"sys.exit({code})\n"
    )
    await agent.form(script(tmp_path, source))
    ends = [await agent.receives_exit(rank) for rank in (0, 1)]
    assert [end["exitCode"] for end in ends] == [code, code]
    assert [end["result"] for end in ends] == [found, ""]


async def test_a_program_without_python_writes_its_result_to_a_file(agent: Agent, launch: Launch) -> None:
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["sh", "-c", 'echo {} > "$CONVOY_RESULT"'], ranks=1)
    assert (await agent.receives_exit(0))["result"] == "{}\n"
    await agent.form(["true"], incarnation=2, ranks=1)
    assert (await agent.receives_exit(0, 2))["result"] == ""
