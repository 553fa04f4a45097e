"""Tests of the engine load as a local run: the real launcher, and a service on this machine."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.catalogue import engine
from convoy_workloads.engines.load import ENGINE
from convoy_workloads.local import LocalEnd, run_local

from .conftest import WORKLOADS


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
    environment = {**os.environ, "PYTHONPATH": str(WORKLOADS)}
    return run_local(job, engine(ENGINE), out=io.StringIO(), environment=environment)


@pytest.mark.timeout(120)
def test_the_result_has_the_figures_of_the_load(url: str) -> None:
    end = run(url=url, bodies=[True, False], rate=40, seconds=0.5, keep_alive=False)
    assert end.exit_code == 0 and end.result is not None
    found = end.result
    assert found["scheduled"] == 20 == found["ok"] + found["failed"]
    assert found["ok"] > 0 and found["failed"] > 0
    assert 0 < found["p50Ms"] <= found["p99Ms"]
