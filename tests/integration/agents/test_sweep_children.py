"""Tests of probe processes that hang, die, write too much output or write false results. Other tests run
the real probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.agents.harness import TIMEOUT, eventually

from convoy_agents.guard.sweep import catalogue, cgroup, finding, process
from convoy_agents.guard.sweep.finding import Finding, Outcome
from convoy_agents.guard.sweep.probe import AcceleratorUse, Probe, Tier
from convoy_agents.guard.sweep.process import MAX_OUTPUT, ChildExit, Children, TooManyStuckError
from convoy_agents.guard.sweep.runner import Launch, Result, Runner

GOOD = json.dumps({"outcome": "Measured", "samples": [1.5]})
FREEZER = Path("/sys/fs/cgroup/freezer")


async def child(code: str, seconds: float = TIMEOUT, children: Children | None = None) -> ChildExit:
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return await (children or Children()).run([sys.executable, "-c", code], env, seconds)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        (f"print('{GOOD}')", Outcome.MEASURED, ""),
        ("import os; os.kill(os.getpid(), 9)", Outcome.CRASHED, "SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", Outcome.CRASHED, "SIGSEGV"),
        ("import sys; sys.exit('no such thing')", Outcome.FAILED, "exited with code 1: no such thing"),
        ("pass", Outcome.NO_OUTPUT, ""),
        ("print('\\x00 garbage')", Outcome.GARBAGE, ""),
        (f"print('{GOOD}'); print('{GOOD}')", Outcome.GARBAGE, ""),
        ("import os\nfor _ in range(100): os.write(1, b'x' * 2**20)", Outcome.GARBAGE, str(MAX_OUTPUT)),
        (
            f"import os\nfor _ in range(100): os.write(2, b'x' * 2**20)\nprint('{GOOD}')",
            Outcome.MEASURED,
            "",
        ),
    ],
    ids=["good", "killed", "segv", "exit", "silent", "garbage", "two", "100 MB", "100 MB of stderr"],
)
async def test_each_end_of_a_child_has_its_outcome(code: str, outcome: Outcome, words: str) -> None:
    ended = await child(code)
    found = finding.from_exit(ended)
    assert found.outcome is outcome
    assert words in found.message
    assert len(ended.output) <= MAX_OUTPUT + 1
    assert len(ended.stderr) <= process.MAX_STDERR


async def test_a_hung_child_is_killed_at_its_deadline_despite_ignored_signals() -> None:
    code = (
        "import signal, time\n"
        "for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(one, signal.SIG_IGN)\n"
        "time.sleep(600)"
    )
    began = time.monotonic()
    ended = await child(code, seconds=0.5)
    assert (finding.from_exit(ended).outcome, ended.code) == (Outcome.TIMED_OUT, -signal.SIGKILL)
    assert time.monotonic() - began < TIMEOUT


@pytest.mark.parametrize("session", [False, True], ids=["in its group", "in a session of its own"])
async def test_processes_started_by_a_child_end_with_the_child(
    session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not session:
        monkeypatch.setattr(cgroup, "own_v2", lambda: None)
    with cgroup.Group() as group:
        if session and group.path is None:
            pytest.skip("no control groups can be made here")
    # The grandchild also inherits the child's pipes and keeps them open.
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        f" start_new_session={session})\n"
        "print(child.pid, flush=True)"
    )
    ended = await child(code)
    assert ended.code == 0
    pid = int(ended.output)
    await eventually(lambda: not alive(pid))


async def test_a_cancelled_child_is_dead() -> None:
    children = Children()
    code = "import os, time\nopen(os.environ['SAY'], 'w').write(str(os.getpid()))\ntime.sleep(600)"
    read, write = os.pipe()
    os.set_inheritable(write, True)
    path = f"/proc/{os.getpid()}/fd/{write}"
    task = asyncio.create_task(children.run([sys.executable, "-c", code], {"SAY": path}, 600))
    pid = int(await asyncio.to_thread(os.read, read, 64))
    assert alive(pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)
    assert children.stuck == 0
    for end in (read, write):
        os.close(end)


async def test_no_child_is_started_while_too_many_are_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "KILL_SECONDS", 0.05)
    monkeypatch.setattr(process._Child, "kill", lambda self: None)
    children = Children()
    for _ in range(process.MAX_STUCK):
        ended = await child("import time; time.sleep(600)", 0.05, children)
        assert finding.from_exit(ended).outcome is Outcome.HUNG
    stuck = list(children._stuck)
    assert children.stuck == process.MAX_STUCK
    with pytest.raises(TooManyStuckError):
        await child("pass", children=children)
    # After the exit of a stuck child, the agent may start another child.
    stuck[0].kill()
    await eventually(lambda: children.stuck < process.MAX_STUCK)
    await child("pass", children=children)
    for one in stuck:
        one.kill()
    await eventually(lambda: children.stuck == 0)


@pytest.fixture
def freezer() -> Iterator[Path]:
    """Yield the folder of a cgroup that can freeze its processes. A frozen process survives SIGKILL, as a
    process that is stuck in a driver does.
    """
    folder = FREEZER / f"convoy-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no freezer of cgroup v1 here")
    yield folder
    (folder / "freezer.state").write_text("THAWED")
    with contextlib.suppress(OSError):
        folder.rmdir()


async def test_a_child_stuck_in_the_kernel_is_abandoned(
    freezer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "KILL_SECONDS", 0.3)
    children = Children()
    state = freezer / "freezer.state"
    code = (
        f"open('{freezer}/cgroup.procs', 'w').write('0')\n"
        f"open('{state}', 'w').write('FROZEN')\n"
        "import time; time.sleep(600)"
    )
    ended = await child(code, 1.0, children)
    assert finding.from_exit(ended).outcome is Outcome.HUNG
    assert children.stuck == 1
    state.write_text("THAWED")
    await eventually(lambda: children.stuck == 0)


async def test_a_probe_s_memory_is_limited() -> None:
    code = (
        "from convoy_agents.guard.sweep import child, probe\n"
        "import json\n"
        "def run(accelerator, seconds):\n"
        "    return probe.Measured([float(len(bytearray({size} << 20)))])\n"
        "one = probe.Probe('x', probe.Tier.L1, '', True, 1, '__main__:run', memory=64 << 20)\n"
        "print(json.dumps(child._measure(one, 0, 1.0)))"
    )
    assert finding.from_exit(await child(code.replace("{size}", "16"))).samples == (16 * 2**20,)
    assert finding.from_exit(await child(code.replace("{size}", "256"))).outcome is Outcome.OUT_OF_MEMORY


async def test_a_child_has_low_priority_and_dies_with_its_agent() -> None:
    code = (
        "from convoy_agents.guard.sweep import child\n"
        "import ctypes, os, resource\n"
        "child._restrict_process()\n"
        "got = ctypes.c_int()\n"
        "ctypes.CDLL(None).prctl(2, ctypes.byref(got), 0, 0, 0)\n"
        "print(got.value, os.nice(0), open('/proc/self/oom_score_adj').read().strip(),"
        " resource.getrlimit(resource.RLIMIT_CORE)[0], os.getsid(0) == os.getpid())"
    )
    death, nice, score, core, leads = (await child(code)).output.decode().split()
    assert (int(death), score, core, leads) == (signal.SIGKILL, "1000", "0", "True")
    assert int(nice) >= 10


async def sweep(folder: Path, *probes: Probe, devices: Path = Path("/dev"), python: str = "") -> list[Result]:
    results: list[Result] = []

    async def paired(probe: Probe, seconds: float) -> Finding:
        raise AssertionError(probe)

    await Runner(Launch(folder, python), devices=devices).run(probes, 120, paired, results.append)
    return results


@pytest.mark.parametrize(
    "name",
    [
        one.name
        for one in catalogue.ALL.values()
        if one.accelerator_use is AcceleratorUse.NONE and one.tier is not Tier.L2
    ],
)
async def test_every_probe_of_a_node_measures(name: str, tmp_path: Path) -> None:
    (result,) = await sweep(tmp_path, replace(catalogue.ALL[name], seconds=0.05))
    found = result.finding
    if name.startswith("disk") and found.outcome is Outcome.NOT_AVAILABLE:
        pytest.skip(found.message)
    assert found.outcome is Outcome.MEASURED, found.message
    if name == "inventory":
        assert found.facts["kernel"] == os.uname().release
        assert len(found.digests) == 1
    elif name == "fingerprint":
        assert len(found.digests) >= 2
        assert len(set(found.digests)) == 1
    else:
        assert len(found.samples) >= 3
        assert min(found.samples) > 0
    assert not any(os.scandir(tmp_path))


async def test_an_accelerator_probe_without_accelerator_is_not_available(tmp_path: Path) -> None:
    (result,) = await sweep(tmp_path, catalogue.ALL["hbm"], devices=tmp_path)
    assert (result.accelerator, result.finding.outcome) == (0, Outcome.NOT_AVAILABLE)


async def test_each_accelerator_has_a_child_and_a_missing_interpreter_fails(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    probes = [catalogue.ALL[name] for name in ("hbm", "nccl")]
    results = await sweep(tmp_path, *probes, devices=tmp_path, python=str(tmp_path / "nothing"))
    assert [one.accelerator for one in results] == [0, 1, None]
    assert {one.finding.outcome for one in results} == {Outcome.FAILED}


async def test_a_killed_disk_probe_leaves_no_files(tmp_path: Path) -> None:
    launch = Launch(tmp_path, seconds=lambda _: 1.5)
    results: list[Result] = []

    async def paired(probe: Probe, seconds: float) -> Finding:
        raise AssertionError(probe)

    probe = replace(catalogue.ALL["disk-write"], seconds=600)
    await Runner(launch).run([probe], 120, paired, results.append)
    if results[0].finding.outcome is Outcome.NOT_AVAILABLE:
        pytest.skip(results[0].finding.message)
    assert results[0].finding.outcome is Outcome.TIMED_OUT
    assert not any(os.scandir(tmp_path))


def test_children_do_not_get_the_agent_s_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    env = Launch(tmp_path).env(catalogue.ALL["fingerprint"])
    assert "AWS_SECRET_ACCESS_KEY" not in env
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["OPENBLAS_NUM_THREADS"]) == ("all", "1")
    assert "OPENBLAS_NUM_THREADS" not in Launch(tmp_path).env(catalogue.ALL["cpu-gemm"])
