"""Tests of the end of a rank after SIGTERM, with real wrappers around a real program."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from .conftest import Agent, Launcher, until

Launch = Callable[..., Launcher]

PROGRAM = """
import os, signal, sys, time
name, code = sys.argv[1], int(sys.argv[2])
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
print("up", name, flush=True)
while not signals: time.sleep(0.01)
print("saving", name, flush=True)
while not os.path.exists("go"): time.sleep(0.01)
for part in range(20): print("part", part, name, flush=True)
open("saved-" + name, "w").close()
sys.exit(code)
"""
"""A program that handles SIGTERM: it waits until the test creates the file `go`, prints lines, and saves
its state.
"""

TRACKED = """
from multiprocessing import shared_memory
kept = shared_memory.SharedMemory(create=True, size=8)
"""
"""A program that starts a resource tracker. The tracker ends a moment after the program."""

WRAPPER = """
import subprocess, sys
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""


class Case(NamedTuple):
    name: str
    script: str
    """Bash script of the rank. `$P` runs the program with the case's name; the exit code follows as an
    argument.
    """
    code: int
    saves: bool = True


HELPER = "sh -c 'trap \"exit 0\" TERM; while :; do sleep 0.01; done'"
CASES = [
    Case("itself", "exec $P 75", 75),
    Case("shell", "$P 0; echo wrapper ends with $?", 0),
    Case("shell-75", "$P 75; echo wrapper ends with $?", 75),
    Case("shells", 'bash -c "bash -c \\"$P 75; echo\\"; echo"; echo', 75),
    Case("subshell", "(cd .; $P 75; echo); echo", 75),
    Case("pipeline", "$P 75 2>&1 | tee log; echo", 75),
    Case("pipelines", "$P 75 | cat | tee log2 | cat; echo", 75),
    Case("substitution", "exec > >(tee log3) 2>&1; $P 75; echo", 75),
    Case("trap", "trap 'echo trapped' TERM; $P 75; exit $?", 75),
    Case("forwards", "trap 'kill -TERM $p' TERM; $P 75 & p=$!; wait $p; wait $p; exit $?", 75),
    Case("forwards-and-goes", "trap 'kill -TERM $p' TERM; $P 75 & p=$!; wait $p; exit $?", 75),
    Case("ends-well", "trap 'exit 3' TERM; $P 75 & wait", 3),
    Case("background", f"{HELPER} & $P 75; echo", 75),
    Case("nohup", "nohup $P 75; echo", 75),
    Case("timeout", "timeout 1000 $P 75; echo", 75),
    Case("timeout-first", "exec timeout 1000 $P 75", 75),
    Case("jobs", "set -m; $P 75 & wait; echo", 75),
    Case("setsid", "setsid $P 75; echo", 75),
    Case("setsid-helper", f"setsid {HELPER} & $P 75; echo", 75),
    Case("setsid-waits", "exec setsid --wait $P 75", 75),
    Case("python", "exec $PYTHON wrapper.py $P 75", 75),
    Case("ignores", "trap '' TERM; sh -c 'until [ -e go ]; do sleep 0.01; done; exit 4'; exit $?", 4, False),
    Case("no-handler", "sleep 1000; echo", 143, saves=False),
    Case("multiprocessing", "$PYTHON pool.py multiprocessing 75; echo", 75),
    Case("no-handler-tracked", "exec $PYTHON tracked.py", 143, saves=False),
    Case("no-handler-pipeline", "$PYTHON tracked.py | tee log4; echo", 143, saves=False),
    Case("make", "exec make -s -f Makefile saved-make", 143),
]


@pytest.fixture
def scripts(tmp_path: Path) -> list[str]:
    """Return a command that each rank runs. It replaces itself with the script of one case, so no extra
    process remains. The rank's number selects the case.
    """
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "wrapper.py").write_text(WRAPPER)
    (tmp_path / "pool.py").write_text(TRACKED + PROGRAM.replace("sys.exit", "kept.unlink(); sys.exit"))
    (tmp_path / "tracked.py").write_text(
        TRACKED + "import time\nprint('tracks', flush=True)\ntime.sleep(1000)\n"
    )
    (tmp_path / "Makefile").write_text("saved-make:\n\t$(P) 75\n")
    python = f"{sys.executable} -I -S"
    for number, case in enumerate(CASES):
        head = f"export PYTHON='{python}' P='{python} program.py {case.name}'\n"
        (tmp_path / str(number)).write_text(head + case.script + "\n")
    return ["sh", "-c", 'exec bash "$RANK"']


async def test_a_rank_lasts_until_all_processes_of_its_command_end(
    agent: Agent, launch: Launch, scripts: list[str], tmp_path: Path
) -> None:
    launcher = launch(CONVOY_GRACE_SECONDS="40")
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(scripts, ranks=len(CASES))
    saving = [case.name for case in CASES if case.saves]
    await until(lambda: all(f"] up {name}\n" in launcher.log for name in saving))
    await until(lambda: launcher.log.count("] tracks\n") == 2)
    launcher.signal(signal.SIGTERM)
    try:
        await until(lambda: all(f"] saving {name}\n" in launcher.log for name in saving), 30)
    finally:
        (tmp_path / "go").touch()
        print(launcher.log)
    await launcher.ends()
    found = {}
    for number, case in enumerate(CASES):
        report = await agent.receives_exit(number)
        found[case.name] = (report["exitCode"], (tmp_path / f"saved-{case.name}").exists() == case.saves)
    assert found == {case.name: (case.code, True) for case in CASES}


async def test_a_helper_that_ignores_sigterm_is_killed_after_the_grace_period(
    agent: Agent, launch: Launch, scripts: list[str], tmp_path: Path
) -> None:
    launcher = launch(CONVOY_GRACE_SECONDS="1")
    await agent.receives(lambda m: m["type"] == "hello")
    (tmp_path / "0").write_text(
        "(trap '' TERM; touch stubborn; while :; do sleep 0.05; done) &\n"
        f"{sys.executable} -I -S program.py program 75; echo\n"
    )
    (tmp_path / "go").touch()
    await agent.form(scripts, ranks=1)
    await until(lambda: "] up program" in launcher.log and (tmp_path / "stubborn").exists())
    launcher.signal(signal.SIGTERM)
    assert await launcher.ends() == 75
    assert (await agent.receives_exit(0))["exitCode"] == 75
    assert (tmp_path / "saved-program").exists()


async def test_a_filter_whose_pipe_stays_open_delays_no_rank(
    agent: Agent, launch: Launch, scripts: list[str], tmp_path: Path
) -> None:
    launcher = launch(CONVOY_GRACE_SECONDS="40")
    await agent.receives(lambda m: m["type"] == "hello")
    (tmp_path / "holds.py").write_text(
        "import runpy, subprocess\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "runpy.run_path('program.py', run_name='__main__')\n"
    )
    (tmp_path / "0").write_text(f"{sys.executable} -I -S holds.py program 75 | tee log; echo\n")
    (tmp_path / "go").touch()
    await agent.form(scripts, ranks=1)
    await until(lambda: "] up program" in launcher.log)
    launcher.signal(signal.SIGTERM)
    assert await launcher.ends(20) == 75


WORKER = "trap 'exit 0' TERM; touch up; while :; do sleep 0.01; done"


@pytest.mark.parametrize(("code", "status"), [("sys.exit(75)", 75), ("os.kill(os.getpid(), 15)", 143)])
async def test_only_a_warm_rank_receives_sigterm_and_its_exit_code_is_kept(
    agent: Agent, launch: Launch, tmp_path: Path, code: str, status: int
) -> None:
    launcher = launch(CONVOY_GRACE_SECONDS="40")
    await agent.receives(lambda m: m["type"] == "hello")
    (tmp_path / "warm.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        f"worker = subprocess.Popen(['sh', '-c', {WORKER!r}])\n"
        "signals = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: signals.append(1))\n"
        "while not (signals and os.path.exists('up')): time.sleep(0.01); print('up', flush=True)\n"
        "print('worker', worker.poll(), flush=True)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n" + code + "\n"
    )
    await agent.form(["python", "warm.py"], ranks=1)
    await until(lambda: "] up" in launcher.log)
    launcher.signal(signal.SIGTERM)
    assert await launcher.ends() == status
    assert "] worker None" in launcher.log


@pytest.mark.parametrize("holds", ["nothing", "a helper's copy"])
async def test_a_filter_forwards_the_last_output_of_a_failed_program(
    agent: Agent, launch: Launch, scripts: list[str], tmp_path: Path, holds: str
) -> None:
    launch()
    await agent.receives(lambda m: m["type"] == "hello")
    (tmp_path / "slow.py").write_text(
        "import os, sys, time\n"
        "for line in sys.stdin:\n"
        "    while os.path.exists('/proc/' + open('first').read()): time.sleep(0.01)\n"
        "    print(line, end='', file=sys.stderr, flush=True)\n"
    )
    helper = "setsid sleep 1000 &" if holds != "nothing" else ""
    (tmp_path / "0").write_text(
        f"printf $$ > first; exec 2> >(exec {sys.executable} -I -S slow.py); {helper}\n"
        f"exec {sys.executable} -I -S -c 'raise SystemExit(\"no such column\")'\n"
    )
    await agent.form(scripts, ranks=1)
    report = await agent.receives_exit(0)
    assert (report["exitCode"], report["signal"], report["stderr"]) == (1, 0, "no such column")


SLEEPS = "until grep -q sleep /proc/$!/comm; do :; done"
"""Script that waits until the shell's child has become `sleep`."""


@pytest.mark.parametrize(
    ("script", "named"),
    [
        (f"nohup sleep 1000 > log 2>&1 & {SLEEPS}", True),
        (f"sleep 1000 & sleep 1000 & {SLEEPS}", True),
        ("sleep 0.01 & wait", False),
        ("sleep 1000 & exit 3", False),
    ],
)
async def test_a_command_that_ends_before_its_children_gets_a_warning(
    agent: Agent, launch: Launch, scripts: list[str], tmp_path: Path, script: str, named: bool
) -> None:
    launcher = launch()
    await agent.receives(lambda m: m["type"] == "hello")
    (tmp_path / "0").write_text(script)
    await agent.form(scripts, ranks=1)
    await agent.receives_exit(0)
    assert ("left running in the background were killed" in launcher.log) is named
    assert ("(sleep 1000)" in launcher.log) is named
