"""Tests of the engine load as a local run: the real launcher, and a service on this machine."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.catalogue import engine
from convoy_workloads.engines.load import ENGINE
from convoy_workloads.local import LocalEnd, run_local

from .conftest import WORKLOADS, Agent, Launcher


class Handler(BaseHTTPRequestHandler):
    """Responds to each request, and refuses every request with the body `false`."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if body == b"true" else 500)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(**params: Any) -> LocalEnd:
    spec = {
        "engine": {"name": "load", "params": {"path": "/v2", "arrivals": "constant", **params}},
        "roles": [{"name": "worker", "replicas": 1}],
        "recovery": {"maxRestarts": 0},
    }
    job = TrainingJob.model_validate({"metadata": {"name": "load"}, "spec": spec})
    made = engine(ENGINE)
    made.spec.command = ["env", *made.spec.command]  # The rank starts cold, because it needs no torch.
    environment = {**os.environ, "PYTHONPATH": str(WORKLOADS)}
    return run_local(job, made, out=io.StringIO(), environment=environment)


@pytest.mark.timeout(120)
def test_the_result_has_the_figures_of_the_load(url: str) -> None:
    end = run(url=url, bodies=[True, False], rate=40, seconds=0.5, keep_alive=False)
    assert end.exit_code == 0 and end.result is not None
    found = end.result
    assert found["scheduled"] == 20 == found["ok"] + found["failed"]
    assert found["ok"] > 0 and found["failed"] > 0
    assert 0 < found["p50Ms"] <= found["p99Ms"]


@pytest.mark.timeout(120)
async def test_a_load_that_is_stopped_ends_at_once_and_has_no_result(
    url: str, agent: Agent, launch: Callable[..., Launcher]
) -> None:
    params = {"url": url, "path": "/v2", "bodies": [True], "rate": 20, "seconds": 600}
    launcher = launch(torch=True, CONVOY_PARAMS=json.dumps(params))
    await agent.receives(lambda m: m["type"] == "hello")
    await agent.form(["env", "python", "-m", "convoy_workloads.engines.load.engine"], ranks=1)
    progress = await agent.receives_step(1)
    assert progress["metrics"]["requests_scheduled"]["value"] > 0
    launcher.signal(signal.SIGTERM)
    end = await agent.receives_exit(0)
    assert (end["exitCode"], end["result"], end["signal"]) == (75, "", 0)
