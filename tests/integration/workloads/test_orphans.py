"""Tests that processes that ranks leave running are ended before the next incarnation starts, and that no
other processes are.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.ports import free_port

from .conftest import Agent, Launcher, until

Launch = Callable[..., Launcher]

HELPERS = """
import os, socket, subprocess, sys, time

def daemon():
    "As daemons do: two forks, a session of its own, nothing executed."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            server = socket.socket(); server.bind(("127.0.0.1", int(os.environ["FREE"]))); server.listen()
            open("port.new", "w").write(str(server.getsockname()[1])); os.rename("port.new", "port")
            time.sleep(1000)
        os._exit(0)
    os.wait()

if os.environ["CONVOY_INCARNATION"] == "1":
    subprocess.Popen(["sleep", "1001"], start_new_session=True)
    subprocess.run(["sh", "-c", "setsid sleep 1002 &"])
    subprocess.run(["sh", "-c", "setsid env -i sleep 1003 &"])
    daemon()
    while not os.path.exists("port"): time.sleep(0.01)
    print("helpers", flush=True)
    if sys.argv[1:] == ["fails"]: sys.exit(3)
    while True: time.sleep(0.05)
server = socket.socket()
server.bind(("127.0.0.1", int(open("port").read())))
print("the port is free", flush=True)
"""


@pytest.mark.parametrize("end", ["fails", "is replaced"])
@pytest.mark.parametrize("start", ["warm", "cold"])
async def test_ports_of_helpers_are_free_for_the_next_incarnation(
    agent: Agent, launch: Launch, tmp_path: Path, start: str, end: str
) -> None:
    launcher = launch(FREE=str(free_port()))
    await agent.receives(lambda m: m["type"] == "hello")
    (tmp_path / "helpers.py").write_text(HELPERS)
    command = [*(["env"] if start == "cold" else []), "python", "helpers.py", end]
    await agent.form(command, ranks=1)
    await until(lambda: "] helpers" in launcher.log)
    if end == "fails":
        assert (await agent.receives_exit(0))["exitCode"] == 3
    await agent.form(command, incarnation=2, ranks=1)
    assert (await agent.receives_exit(0, incarnation=2))["exitCode"] == 0
    assert "[2/0] the port is free" in launcher.log
    [line] = [line for line in launcher.log.splitlines() if "left running" in line]
    assert all(f"(sleep {number})" in line for number in (1001, 1002, 1003))
    assert running(tmp_path) == {launcher.process.pid}


async def test_a_launcher_that_is_not_pid_1_leaves_no_processes(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch(FREE=str(free_port()))
    await agent.receives(lambda m: m["type"] == "hello")
    (tmp_path / "helpers.py").write_text(HELPERS)
    await agent.form(["python", "helpers.py"], ranks=1)
    await until(lambda: "] helpers" in launcher.log)
    agent.send(type="shutdown", exitCode=0)
    assert await launcher.ends() == 0
    await until(lambda: not running(tmp_path))


CONTAINER = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "setsid")
"""Command that runs another command as a container's first process and as the leader of a session."""


@pytest.mark.skipif(
    subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode != 0,
    reason="process namespaces cannot be made here",
)
async def test_processes_started_by_kubectl_exec_are_not_killed(
    agent: Agent, launch: Launch, tmp_path: Path
) -> None:
    launcher = launch(prefix=CONTAINER, FREE=str(free_port()))
    await agent.receives(lambda m: m["type"] == "hello")
    (tmp_path / "helpers.py").write_text(HELPERS)
    await agent.form(["python", "helpers.py"], ranks=1)
    await until(lambda: "] helpers" in launcher.log)
    [first] = children(launcher.process.pid)
    session = enter(first, tmp_path, "sleep 1011; true")
    orphans = "sh -c 'env -i sleep 1013; true' & nohup sleep 1012 & nohup setsid sleep 1014 &"
    assert await asyncio.to_thread(enter(first, tmp_path, orphans).wait, 10) == 0
    try:
        spared = {f"sleep {number}" for number in (1011, 1012, 1013, 1014)}
        await until(lambda: spared <= commands(tmp_path))
        await agent.form(["python", "helpers.py"], incarnation=2, ranks=1)
        assert (await agent.receives_exit(0, incarnation=2))["exitCode"] == 0
        assert {command for command in commands(tmp_path) if command.startswith("sleep")} == spared
        agent.send(type="shutdown", exitCode=0)
        assert await launcher.ends() == 0
    finally:
        session.kill()
        session.wait()


def enter(first: int, folder: Path, script: str) -> subprocess.Popen[bytes]:
    """Start a script as `kubectl exec` does.

    The script runs in the container's namespaces, with the environment of the container's first process. It
    has its own session, and its parent is outside the container.
    """
    words = Path(f"/proc/{first}/environ").read_text().split("\0")
    return subprocess.Popen(
        [
            "nsenter",
            "--target",
            str(first),
            "--pid",
            "--mount",
            "setsid",
            "--wait",
            "sh",
            "-c",
            f"cd {folder}; {script}",
        ],
        env=dict(word.split("=", 1) for word in words if word),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def running(folder: Path) -> set[int]:
    """Return the processes that run in this folder, without zygotes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cwd").readlink() == folder and b"--zygote" not in (path / "cmdline").read_bytes():
                found.add(int(path.name))
        except OSError:
            continue
    return found


def commands(folder: Path) -> set[str]:
    found = set()
    for pid in running(folder):
        try:
            found.add(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
        except OSError:
            continue
    return found


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
