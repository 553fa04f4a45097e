"""Converts the recorded files of a rank, and sends the trace to the agent of its node.

The runtime runs this as a process of its own after a recording, with a JSON object (runtime/tracing.py) as
the only argument. It needs the standard library alone, so that it runs in any image. The program trains on
meanwhile, so this process has the lowest priority.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

from convoy_workloads.runtime.frames import Decoder, FrameError, Message, encode
from convoy_workloads.runtime.log import log_line
from convoy_workloads.traces.analysis import Analysis, analyse
from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.findings import InvalidTrace
from convoy_workloads.traces.replay import replay
from convoy_workloads.traces.torch_json.document import load_json
from convoy_workloads.traces.wire import writer

PART_BYTES = 96 * 1024
"""Bytes of a file in one frame. In base64 they fit into a frame (runtime/frames.py)."""
RESPONSE_SECONDS = 30.0
"""Maximum seconds without any frame of the agent."""
ATTEMPTS = 6
SECONDS = 200.0
"""Maximum attempts to send the file, and maximum seconds of all of them together."""
PAUSES = (1.0, 30.0)
"""Shortest and longest pause between two attempts, in seconds. It doubles each time."""


class Refused(Exception):
    """Raised if the agent does not want the file, so that no further attempt is useful."""


class NotStored(Exception):
    """Raised if the file did not reach the store this time."""


def main(arguments: list[str]) -> int:
    """Convert and send the trace of one task. Return the exit code."""
    os.nice(19)
    task = json.loads(arguments[0])
    try:
        message = deliver(task)
    except Refused as error:
        message = f"the agent refuses it: {error}"
    finally:
        shutil.rmtree(task["folder"], ignore_errors=True)
    if message:
        log_line(f"rank {task['rank']} has no trace: {message}")
    return 1 if message else 0


def deliver(task: Message) -> str:
    """Convert and send the trace. Return the cause why there is none in the store; empty if there is.

    Raises Refused.
    """
    try:
        data, facts = converted(task)
    except (InvalidTrace, MemoryError, OSError) as error:
        return _report(task, "NOT_RECORDED", f"the conversion failed: {error or type(error).__name__}")
    if len(data) > task["maxBytes"]:
        why = f"the trace needs {len(data)} bytes; the budget is {task['maxBytes']}"
        return _report(task, "TOO_LARGE", why)
    deadline, pause, why = time.monotonic() + SECONDS, PAUSES[0], ""
    for _ in range(ATTEMPTS):
        try:
            send(task, data, facts)
        except NotStored as error:
            why = str(error)
        except (OSError, FrameError) as error:
            why = f"the agent does not respond: {error}"
        else:
            return ""
        if time.monotonic() + pause >= deadline:
            break
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads attempts, no secret
        pause = min(2 * pause, PAUSES[1])
    return _report(task, "NOT_STORED", why)


def converted(task: Message) -> tuple[bytes, Message]:
    """Return the file of the trace, and its figures. Raises InvalidTrace or OSError."""
    folder, rank = Path(task["folder"]), int(task["rank"])
    host, kineto = (load_json(folder / f"{kind}.{rank}.json") for kind in ("host", "kineto"))
    trace = convert(host, kineto, rank).trace
    found = analyse(replay(trace))
    facts = {
        "nodes": len(trace.nodes),
        "commBytesPerStep": bytes_per_step(found, str(task["ownGroup"])),
        "exposedCommunicationRatio": min(1.0, found.exposed_share),
    }
    return writer.encode(trace), facts


def bytes_per_step(found: Analysis, own_group: str) -> int:
    """Return the bytes that the program puts into communications in a step, without those of Convoy's own
    process group `own_group`; empty for none.
    """
    total = sum(one.bytes for one in found.traffic if not own_group or one.group != own_group)
    return round(total / max(found.steps, 1))


def send(task: Message, data: bytes, facts: Message) -> None:
    """Send a file to the agent, which stores it. Raises Refused, NotStored, OSError or FrameError."""
    agent = _Agent(task)
    try:
        digest = hashlib.sha256(data).hexdigest()
        answer = agent.request(
            {"type": "traceFile", **_order(task), "bytes": len(data), "sha256": digest, **facts}
        )
        if answer["type"] != "send":
            raise Refused(str(answer.get("why", answer["type"])))
        for at in range(0, len(data), PART_BYTES):
            part = base64.b64encode(data[at : at + PART_BYTES]).decode()
            agent.send_frame({"type": "part", "data": part})
        answer = agent.receive()
        if answer["type"] == "failed":
            if not answer.get("retry"):
                why = str(answer.get("why", ""))
                _report(task, "NOT_STORED", why)
                raise Refused(why)
            raise NotStored(str(answer.get("why", "")))
        if answer["type"] != "stored":
            raise Refused(str(answer.get("why", answer["type"])))
    finally:
        agent.close()


class _Agent:
    """A connection to the agent."""

    def __init__(self, task: Message) -> None:
        self._decoder = Decoder()
        self._answers: list[Message] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(RESPONSE_SECONDS)
        try:
            self._socket.connect(task["socket"])
            hello: Message = {"type": "hello", "role": "trace"}
            self.send_frame({**hello, "incarnation": task["incarnation"], "rank": task["rank"]})
        except OSError:
            self.close()
            raise

    def send_frame(self, message: Message) -> None:
        """Send a frame."""
        self._socket.sendall(encode(message))

    def request(self, message: Message) -> Message:
        """Send a frame and return the answer."""
        self.send_frame(message)
        return self.receive()

    def receive(self) -> Message:
        """Return the next frame of the agent that is no `wait`. The agent repeats `wait` while it works."""
        while True:
            while not self._answers:
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionError("it closed the connection")
                self._answers += self._decoder.feed(data)
            answer = self._answers.pop(0)
            if answer["type"] != "wait":
                return answer

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _report(task: Message, failure: str, why: str) -> str:
    """Tell the agent why there is no trace, if it responds. Return the cause."""
    message: dict[str, Any] = {"type": "traceFailed", **_order(task), "failure": failure}
    try:
        agent = _Agent(task)
        try:
            agent.request({**message, "message": why[:500]})
        finally:
            agent.close()
    except (OSError, FrameError) as error:
        log_line(f"rank {task['rank']}: the agent does not respond: {error}")
    return why


def _order(task: Message) -> Message:
    return {"recording": task["recording"], "attempt": task["attempt"]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
