"""Tests of the engine fmplex as a local run: two pods share the tasks, and the admin socket changes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from convoy_crds import terms
from convoy_workloads.engines.fmplex import ENGINE
from convoy_workloads.launcher import proc

from .conftest import WORKLOADS
from .test_serving import manifest, running

PIXELS = [((7 * number) % 256) / 256 for number in range(3 * 16 * 16)]
IMAGE = {"name": "image", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": PIXELS}
TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["where is it"]}
TASKS = [
    {"name": "words", "adapter_ref": "seed:1", "head": "classify:3"},
    {"name": "photos", "backbone_ref": "image", "head": "classify:3"},
]


def job(port: int, group: int) -> dict[str, Any]:
    body = manifest(port, group=group)
    params = {**ENGINE.small, "tasks": TASKS}
    body["spec"]["roles"][0]["engine"] = {"name": "fmplex", "params": params}
    return body


def infer(port: int, task: str, tensor: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{port}/v2/models/{task}/infer"
    data = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as response:
        return json.load(response)["outputs"]


def pods(port: int) -> dict[str, int]:
    """Return the pod of each task."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=30) as response:
        return {one["id"]: one["pod"] for one in json.load(response)["data"]}


def admin(socket: Path, *arguments: str) -> tuple[int, Any]:
    environment = {**os.environ, "PYTHONPATH": str(WORKLOADS), terms.ENV_ADMIN_SOCKET: str(socket)}
    command = [sys.executable, "-m", "convoy_workloads.serving.admin_client", *arguments]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(240)
def test_the_pods_of_a_replica_share_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "admin"
    monkeypatch.setenv(terms.ENV_ADMIN_SOCKET, str(socket))
    with running(tmp_path, job(free_port(), group=2)) as run:
        run.ready()
        assert pods(run.port) == {"words": 0, "photos": 1}
        before = [infer(run.port, "words", TEXT), infer(run.port, "photos", IMAGE)]

        late = {"name": "late", "backbone_ref": "image", "adapter_ref": "seed:2", "head": "classify:2"}
        assert admin(socket, "POST", "/tasks", json.dumps(late)) == (0, {"attached": "late"})
        assert pods(run.port)["late"] == 1
        assert infer(run.port, "late", IMAGE)[0]["shape"] == [1, 2]
        bad = {**late, "name": "bad", "adapter_ref": "file:x.safetensors"}
        code, found = admin(socket, "POST", "/tasks", json.dumps(bad))
        assert (code, "spec.model is not set" in found["error"]) == (1, True)
        assert admin(socket, "DELETE", "/tasks/late") == (0, {"detached": "late"})

        (other,) = [pid for pid in proc.descendants(proc.scan(), run.process.pid) if _name(pid) == "rank-1"]
        os.kill(other, signal.SIGKILL)
        run.ready(times=2)
        assert [infer(run.port, "words", TEXT), infer(run.port, "photos", IMAGE)] == before
        assert run.end() == 0


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
