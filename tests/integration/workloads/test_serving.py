"""Tests of a ServingJob as a local run: the real launcher, the real engine lm, and `convoy load`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from convoy_workloads.launcher import proc

from .conftest import DEADLINE, WORKLOADS

SMALL = {"context": 64, "layers": 1, "width": 32, "heads": 2, "kv_tokens": 1024}


def manifest(port: int, replicas: int = 1, group: int = 1, **spec: Any) -> dict[str, Any]:
    role = {"name": "server", "groupSize": group, "engine": {"name": "lm", "params": SMALL}}
    rollout = {"drainSeconds": 20}
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "ServingJob",
        "metadata": {"name": "lm"},
        "spec": {
            "replicas": replicas,
            "roles": [role],
            "service": {"port": port},
            "rollout": rollout,
            **spec,
        },
    }


class Run:
    """A `convoy run` of a ServingJob in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], object], seconds: float = DEADLINE) -> None:
        """Wait until the condition holds. Raises AssertionError after `seconds`, or if the run has ended."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline and self.process.poll() is None, self.output
            time.sleep(0.02)

    def ready(self, replica: int = 0, times: int = 1) -> None:
        """Wait until the replica has reported `times` times that it is ready."""
        line = f"replica {replica} of role server is ready"
        self.until(lambda: self.output.count(line) >= times)

    def complete(self, replica: int = 0, **body: Any) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": body.pop("token", "")}
        data = json.dumps({"prompt": "abc", "max_tokens": 4, "seed": 1, **body}).encode()
        url = f"http://127.0.0.1:{self.port + replica}/v1/completions"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def rank_pid(self) -> int:
        """Return the id of the rank that listens on the serving port. Its launcher keeps a copy of the
        socket.
        """
        every = proc.scan()
        listening = {pid for pid in proc.descendants(every, self.process.pid) if _listens(pid, self.port)}
        return next(pid for pid in listening if listening.isdisjoint(proc.descendants(every, pid)))

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def _listens(pid: int, port: int) -> bool:
    """Return True if a process has a listening socket of this port."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    inodes = {
        row.split()[9] for row in rows if row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A"
    }
    return not inodes.isdisjoint(_sockets(pid))


def _sockets(pid: int) -> Iterator[str]:
    """Return the inodes of a process's sockets. A descriptor may be closed while this reads it."""
    with contextlib.suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(one.readlink()).removeprefix("socket:[").removesuffix("]")


@contextlib.contextmanager
def running(
    folder: Path, body: dict[str, Any], *options: str, engine: dict[str, Any] | None = None
) -> Iterator[Run]:
    file, log = folder / "job.yaml", folder / "log"
    file.write_text("\n---\n".join(json.dumps(one) for one in (engine, body) if one is not None))
    environment = {**os.environ, "PYTHONPATH": str(WORKLOADS), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "convoy.cli", "run", str(file), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield Run(process, log, body["spec"]["service"]["port"])
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


@pytest.mark.timeout(180)
def test_a_replica_serves_survives_a_kill_and_drains(tmp_path: Path) -> None:
    with running(tmp_path, manifest(free_port())) as run:
        run.ready()
        first = run.complete()
        assert first[0] == 200
        os.kill(run.rank_pid(), signal.SIGKILL)
        # The launcher keeps the socket, so the connection waits for the next rank, which may still load.
        assert run.complete()[0] in (200, 503)
        run.ready(times=2)
        code, body = run.complete()
        # The weights come from a seed, so the text is the same after a restart.
        assert (code, body["choices"]) == (200, first[1]["choices"])
        assert "rank 0 ended with exit code 137" in run.output
        assert run.end() == 0
        assert "ends: accepts requests" in run.output


@pytest.mark.timeout(180)
def test_a_stopped_engine_is_not_ready_until_it_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, manifest(free_port())) as run:
        run.ready()
        pid = run.rank_pid()
        os.kill(pid, signal.SIGSTOP)
        run.until(lambda: "replica 0 of role server is not ready" in run.output)
        os.kill(pid, signal.SIGCONT)
        run.ready(times=2)
        assert run.complete()[0] == 200


@pytest.mark.timeout(180)
def test_a_group_of_two_restarts_whole_and_drains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command line of a cold rank is its own, so its process can be found.
    monkeypatch.setenv("CONVOY_WARM", "false")
    body = manifest(free_port(), group=2)
    body["spec"]["roles"][0]["engine"]["params"] = {**SMALL, "layers": 2}
    with running(tmp_path, body) as run:
        run.ready()
        first = run.complete()[1]["choices"]
        ranks = [
            pid for pid in proc.descendants(proc.scan(), run.process.pid) if b"lm.engine" in _command(pid)
        ]
        other = next(pid for pid in ranks if pid != run.rank_pid())
        os.kill(other, signal.SIGKILL)
        run.ready(times=2)
        assert run.complete()[1]["choices"] == first
        assert run.end() == 0


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.mark.timeout(180)
def test_load_on_two_replicas_loses_nothing_while_the_run_ends(tmp_path: Path) -> None:
    with running(tmp_path, manifest(free_port(), replicas=2)) as run:
        run.ready(0)
        run.ready(1)
        assert run.complete(0)[1]["choices"] == run.complete(1)[1]["choices"]
        report = tmp_path / "report.json"
        command = [sys.executable, "-m", "convoy.cli", "load", f"http://127.0.0.1:{run.port}", "--rate", "10"]
        command += ["--seconds", "3", "--max-tokens", "8", "--timeout", "60", "--json", str(report)]
        environment = {**os.environ, "PYTHONPATH": str(WORKLOADS)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(report.read_text())
        assert found["ok"] == found["scheduled"] > 10
        assert run.end() == 0


@pytest.mark.timeout(180)
def test_requests_need_the_token_of_the_option(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    port = free_port()
    auth = {"port": port, "auth": {"type": "Token", "secretName": "s"}}
    with running(tmp_path, manifest(port, service=auth), "--token-file", str(token)) as run:
        run.ready()
        assert run.complete()[0] == 401
        assert run.complete(token="Bearer secret")[0] == 200


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("pickle", r"holds a pickle"),
        (
            "absent option",
            r"spec\.model is in the cluster: give a local copy of the model with --model FOLDER",
        ),
        ("absent folder", r"--model .*absent does not exist"),
        ("port", r"spec\.service\.port: port \d+ of 127\.0\.0\.1 cannot be opened: Address already in use"),
        ("training", r"Engine 'gpt' has roleKind Training, and this kind of job needs Serving"),
        ("unknown", r"have an Engine 'ln'; there are: .*lm"),
        ("params", r"spec\.roles\[0\]\.engine\.params"),
        ("token", r"give a file with the token with --token-file FILE"),
    ],
)
def test_a_job_that_cannot_be_served_ends_with_advice(case: str, words: str, tmp_path: Path) -> None:
    port = free_port()
    body = manifest(port)
    options: list[str] = []
    with contextlib.ExitStack() as stack:
        if case == "pickle":
            (tmp_path / "model.pt").write_bytes(b"x")
            body["spec"]["model"] = {"volume": {"claimName": "models"}}
            options = ["--model", str(tmp_path)]
        elif case == "absent option":
            body["spec"]["model"] = {"checkpoint": {"job": "gpt", "store": "main"}}
        elif case == "absent folder":
            options = ["--model", str(tmp_path / "absent")]
        elif case == "port":
            taken = stack.enter_context(socket.socket())
            taken.bind(("127.0.0.1", port))
            taken.listen()
        elif case in ("training", "unknown"):
            body["spec"]["roles"][0]["engine"] = {"name": "gpt" if case == "training" else "ln"}
        elif case == "params":
            body["spec"]["roles"][0]["engine"]["params"] = {"rows": "many"}
        else:
            body["spec"]["service"]["auth"] = {"type": "Token", "secretName": "s"}
        run = stack.enter_context(running(tmp_path, body, *options))
        assert run.process.wait(DEADLINE) != 0
        assert re.search(words, run.output), run.output
