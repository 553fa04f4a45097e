"""Tests of the figures of a ServingJob's requests, on real nodes."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.drive.serving_jobs import ServingJobs, complete, load

PROGRAM = """
import http.server, os
served = 0
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global served
        served += self.path == "/work"
        done = f'vllm:request_success_total{{finished_reason="stop"}} {served}'
        text = f'vllm:num_requests_waiting 3\\n{done}\\n'
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", int(os.environ["CONVOY_SERVING_PORT"])), Page).serve_forever()
"""
"""A program without Convoy's serving front, with metrics named like those of vLLM."""


def traffic(serving: ServingJobs, name: str) -> dict[str, Any]:
    """Return `status.traffic`; empty if it is absent."""
    return serving.status(name).get("traffic") or {}


@pytest.mark.full
def test_the_status_has_the_requests_of_all_replicas(cluster: Cluster, serving: ServingJobs) -> None:
    serving.create("busy", replicas=2, slo={"p95Ms": 60_000})
    serving.wait_rolled("busy")
    assert complete(serving.url("busy"))
    with load(serving.url("busy"), 20) as running:
        serving.wait(lambda: traffic(serving, "busy").get("requestsPerSecond", 0) > 8, 90, "20 requests/s")
        serving.wait(lambda: serving.condition("busy", "SLOMet") == ("True", "ObjectivesMet"), 20, "SLOMet")
        report = running.report()
    found = traffic(serving, "busy")
    assert found["p95Ms"] > 0 and found["ttftMs"] > 0, found
    assert report["ok"] == report["scheduled"] > 0
    heads, line = cluster.kubectl("get", "servingjobs", "-n", serving.namespace, "busy").splitlines()
    assert "P95" in heads and "REQ/S" in heads and "<none>" not in line


@pytest.mark.full
def test_the_agent_reads_the_metrics_of_other_programs(serving: ServingJobs) -> None:
    container = {
        "name": "server",
        "image": "convoy/torch:dev",
        "command": ["python", "-c", PROGRAM],
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/ready"}, "periodSeconds": 1},
    }
    template = {"spec": {"containers": [container]}}
    serving.create("other", replicas=1, roles=[{"name": "server", "metrics": {}, "template": template}])
    serving.wait_rolled("other")
    serving.wait(lambda: traffic(serving, "other").get("queue") == 3, 60, "the queue of the program")
