"""Tests of the agent in a separate process, and of the real launcher in the mounted folder."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import TIMEOUT, FakeHub, Host, assignment

from convoy_agents.csi import library
from convoy_agents.wire import hub_pb2

UID = "aaaa-1111"


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with a path that is short enough for socket addresses."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


async def test_the_agent_starts_serves_and_exits_on_sigterm(short: Path, hub: FakeHub) -> None:
    host = Host(short, "one", hub)
    environment = {
        entry.metadata["env"]: str(getattr(host.settings, entry.name)) for entry in fields(host.settings)
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "convoy_agents",
        env={**environment, "PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await hub.until(lambda _, message: message.WhichOneof("body") == "heartbeat")
        process.send_signal(signal.SIGTERM)
        out, err = await asyncio.wait_for(process.communicate(), TIMEOUT)
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, err.decode()) == (0, "")
    assert (
        await hub.until(lambda _, message: message.WhichOneof("body") == "goodbye")
    ).goodbye.reason == "SIGTERM"
    lines = [json.loads(line) for line in out.splitlines()]
    assert {"agent up", "enrolled", "session established", "leaving"} <= {line["event"] for line in lines}
    run, plugins = host.settings.run_dir, host.settings.kubelet_dir
    assert sorted(path.name for path in run.iterdir()) == [], "the next one makes it anew"
    assert [path for path in plugins.rglob("*") if "convoy" in path.name] == []
    assert b"token-of" not in out
    assert b"PRIVATE" not in out


async def test_unusable_settings_are_named(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "convoy_agents",
        env={"PYTHONPATH": ":".join(sys.path)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert (process.returncode, err) == (2, b"convoy-agent: CONVOY_NODE_NAME is not set\n")


async def test_the_real_launcher_runs_from_the_mounted_folder(
    make_host: HostMaker, hub: FakeHub, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.integration.agents.harness.fake_sources", lambda _: library.installed())
    host = await make_host("one")
    await host.publish(UID)
    (short / "m").symlink_to(host.target(UID))
    launcher = await asyncio.create_subprocess_exec(
        "python3", "-I", "-S", str(short / "m/lib/convoy_launch.py"),
        env={"CONVOY_SOCKET": str(short / "m/agent.sock"), "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        await hub.report(UID, lambda report: report.launcher_connected)
        hub.send("one", pick_port=hub_pb2.PickPort(pod_uid=UID, incarnation=1))
        await hub.report(UID, lambda report: report.port_incarnation == 1 and report.master_port > 1023)
        plan = assignment("job", 1, 0, [(UID, host, 2)])
        # Rank 0 exits with code 0. Rank 1 exits with code 3 and writes to stderr.
        script = 'echo "rank $RANK of $WORLD_SIZE" >&2; exit $((RANK * 3))'
        del plan.command[:]
        plan.command.extend(["sh", "-c", script])
        hub.send("one", assignment=plan)
        report = await hub.report(
            UID,
            lambda report: (
                len(report.ranks) == 2
                and all(rank.state == hub_pb2.RankReport.EXITED for rank in report.ranks)
            ),
        )
        assert [rank.exit_code for rank in report.ranks] == [0, 3]
        assert "rank 1 of 2" in report.ranks[1].stderr_tail
        hub.send("one", shutdown=hub_pb2.Shutdown(pod_uid=UID, exit_code=3, reason="done"))
        out, _ = await asyncio.wait_for(launcher.communicate(), TIMEOUT)
        assert launcher.returncode == 3, out.decode()
    finally:
        if launcher.returncode is None:
            launcher.kill()
    await hub.report(UID, lambda report: not report.launcher_connected and report.incarnation == 1)
