"""Tests of the way of peers to an engine: by the agent of a pod, and in a local run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from .conftest import Agent, Launcher, until
from .test_serving import manifest, running

PROGRAM = Path(__file__).parent / "programs" / "peered.py"


@pytest.mark.timeout(180)
async def test_the_peers_that_the_agent_reports_reach_the_engine(
    agent: Agent, launch: Callable[..., Launcher]
) -> None:
    launcher = launch(
        torch=True,
        CONVOY_WARM="false",
        CONVOY_PARAMS="{}",
        CONVOY_SERVING_PORT=str(free_port()),
        CONVOY_READY_PORT=str(free_port()),
        CONVOY_ENDPOINT_LAG_SECONDS="0",
    )
    await agent.receives(lambda m: m["type"] == "hello" and m["role"] == "launcher")
    await agent.form([sys.executable, str(PROGRAM)], ranks=1)
    await agent.receives(lambda m: m["type"] == "loading")
    agent.send_to_rank(0, type="endpoints", incarnation=1, addresses=["10.0.0.1:8080", "10.0.0.2:8080"])
    await agent.receives(lambda m: m["type"] == "traffic")
    agent.send_to_rank(0, type="endpoints", incarnation=1, addresses=["10.0.0.1:8080"])
    await until(lambda: "peers of 10.0.0.1:8080: ." in launcher.log)
    assert "peers of 10.0.0.1:8080: 10.0.0.2:8080." in launcher.log
    launcher.signal(signal.SIGTERM)
    assert (await agent.receives_exit(0))["exitCode"] == 0


def engine() -> dict[str, Any]:
    spec = {"image": "mine", "command": [sys.executable, str(PROGRAM)], "roleKind": "Serving"}
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "Engine",
        "metadata": {"name": "peered"},
        "spec": {**spec, "replicaPeers": True},
    }


@pytest.mark.timeout(180)
def test_replicas_of_a_local_run_are_peers_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVOY_WARM", "false")
    first = free_port()
    body = manifest(first, replicas=2)
    body["spec"]["roles"][0]["engine"] = {"name": "peered"}
    with running(tmp_path, body, engine=engine()) as run:
        run.ready(0)
        run.ready(1)
        line = f"peers of 127.0.0.1:{first}: 127.0.0.1:{first + 1}."
        assert run.output.count(line) == 1
        assert f"peers of 127.0.0.1:{first + 1}: 127.0.0.1:{first}." in run.output
        os.kill(run.rank_pid(), signal.SIGKILL)
        run.ready(0, times=2)
        assert run.output.count(line) == 2
        assert run.end() == 0
