"""Tests of programs without Convoy's serving front, on real nodes."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.drive.serving_jobs import ServingJobs, load

PROGRAM = """
import http.server, json, os, signal, threading, time
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.respond(b"ready")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.2)
        self.respond(json.dumps({"choices": [{"text": os.environ["ANSWER"]}]}).encode())
    def respond(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128
server = Server(("", int(os.environ["CONVOY_SERVING_PORT"])), Answers)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
"""
"""A server that finishes its requests in flight after SIGTERM, as Convoy asks of a program."""


def answering(text: str) -> list[dict[str, Any]]:
    """Return a role of replicas that answer with a text. Another text is another revision."""
    container = {
        "name": "server",
        "image": "convoy/torch:dev",
        "command": ["python", "-c", PROGRAM],
        "env": [{"name": "ANSWER", "value": text}],
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1},
    }
    return [{"name": "server", "template": {"spec": {"containers": [container]}}}]


@pytest.mark.full
def test_a_program_that_ends_as_asked_rolls_without_a_lost_request(serving: ServingJobs) -> None:
    serving.create("own", replicas=2, roles=answering("one"), rollout={"drainSeconds": 5})
    serving.wait_rolled("own")
    with load(serving.url("own"), 20, 600, "--no-stream", "--no-keep-alive") as running:
        for text in ("two", "three"):
            serving.patch("own", roles=answering(text))
            serving.wait_rolled("own")
        report = running.report()
    assert report["ok"] == report["scheduled"] > 100, report["causes"]
