"""Converts the recorded files of a rank, and sends the trace to the agent of its node.

The runtime runs this as a process of its own after a recording, with a JSON object (runtime/tracing.py) as
the only argument. It needs the standard library alone, so that it runs in any image. The program trains on
meanwhile, so this process has the lowest priority.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import random
import shutil
import socket
import sys
import time
from pathlib import Path

from convoy_workloads.runtime.frames import Decoder, FrameError, Message, encode
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.trace_protocol import REPORTED, STORED, UNREPORTED, Failure, failure_frame
from convoy_workloads.traces.analysis import Analysis, analyse
from convoy_workloads.traces.convert.convert import convert
from convoy_workloads.traces.findings import InvalidTrace
from convoy_workloads.traces.memory import TooLittleMemory, limit_memory, prefer_to_kill
from convoy_workloads.traces.replay import replay
from convoy_workloads.traces.torch_json.document import load_json
from convoy_workloads.traces.wire import writer
from convoy_workloads.traces.wire.limits import LIMITS

PART_BYTES = 96 * 1024
"""Bytes of a file in one frame. In base64 they fit into a frame (runtime/frames.py)."""
RESPONSE_SECONDS = 30.0
"""Maximum seconds without any frame of the agent."""
ATTEMPTS = 6
SECONDS = 200.0
"""Maximum attempts to send the file, and maximum seconds of all of them together."""
PAUSES = (1.0, 30.0)
"""Shortest and longest pause between two attempts, in seconds. It doubles each time."""


class NoTrace(Exception):
    """Raised if there is no trace in the store, and a further attempt is useless."""

    def __init__(self, failure: Failure, why: str) -> None:
        super().__init__(why)
        self.failure = failure


class NotStored(Exception):
    """Raised if the file did not reach the store this time."""


def main(arguments: list[str]) -> int:
    """Convert and send the trace of one task. Return the exit code (runtime/trace_protocol.py)."""
    prefer_to_kill()
    task = json.loads(arguments[0])
    try:
        deliver(task)
    except NoTrace as error:
        failure, why = error.failure, str(error)
    except Exception as error:  # Whatever it is, the agent must know that there is no trace.
        failure, why = Failure.NOT_RECORDED, f"{type(error).__name__}: {error}"
    else:
        return STORED
    finally:
        shutil.rmtree(task["folder"], ignore_errors=True)
    log_line(f"rank {task['rank']} has no trace: {why}")
    return REPORTED if reported(task, failure, why) else UNREPORTED


def deliver(task: Message) -> None:
    """Convert the trace, and send it until it is in the store. Raises NoTrace if further attempts are
    useless.
    """
    try:
        data, facts = converted(task)
    except (InvalidTrace, TooLittleMemory, MemoryError, OSError) as error:
        why = f"the conversion failed: {str(error) or type(error).__name__}"
        raise NoTrace(Failure.NOT_RECORDED, why) from None
    if len(data) > task["maxBytes"]:
        why = f"the trace needs {len(data)} bytes; the budget is {task['maxBytes']}"
        raise NoTrace(Failure.TOO_LARGE, why)
    deadline, pause, why = time.monotonic() + SECONDS, PAUSES[0], ""
    for _ in range(ATTEMPTS):
        try:
            send(task, data, facts, deadline)
        except NotStored as error:
            why = str(error)
        except (OSError, FrameError) as error:
            why = f"the agent does not respond: {error}"
        else:
            return
        if time.monotonic() + pause >= deadline:
            break
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads attempts, no secret
        pause = min(2 * pause, PAUSES[1])
    raise NoTrace(Failure.NOT_STORED, why)


def converted(task: Message) -> tuple[bytes, Message]:
    """Return the file of the trace, and its figures. Raises InvalidTrace, TooLittleMemory or OSError."""
    folder, rank = Path(task["folder"]), int(task["rank"])
    paths = [folder / f"{kind}.{rank}.json" for kind in ("host", "kineto")]
    sizes = [path.stat().st_size for path in paths]
    limit_memory(sum(sizes))
    # A reader takes as many bytes of memory as a file may have, before it knows how many there are.
    limits = dataclasses.replace(LIMITS, file_bytes=max(sizes))
    host, kineto = (load_json(path, limits) for path in paths)
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


def send(task: Message, data: bytes, facts: Message, deadline: float) -> None:
    """Send a file to the agent, which stores it. Raises NoTrace, NotStored, OSError or FrameError.

    `deadline`: the value of time.monotonic() at which the attempt ends.
    """
    agent = _Agent(task, deadline)
    try:
        digest = hashlib.sha256(data).hexdigest()
        answer = agent.request(
            {"type": "traceFile", **_order(task), "bytes": len(data), "sha256": digest, **facts}
        )
        if answer["type"] != "send":
            raise _refused(answer)
        for at in range(0, len(data), PART_BYTES):
            part = base64.b64encode(data[at : at + PART_BYTES]).decode()
            agent.send_frame({"type": "part", "data": part})
        answer = agent.receive()
        if answer["type"] == "failed":
            why = str(answer.get("why", ""))
            raise NotStored(why) if answer.get("retry") else NoTrace(Failure.NOT_STORED, why)
        if answer["type"] != "stored":
            raise _refused(answer)
    finally:
        agent.close()


def reported(task: Message, failure: Failure, why: str) -> bool:
    """Tell the agent why there is no trace. Return False if it does not respond."""
    try:
        agent = _Agent(task, time.monotonic() + RESPONSE_SECONDS)
        try:
            agent.request(failure_frame(**_order(task), failure=failure, why=why))
        finally:
            agent.close()
    except (OSError, FrameError) as error:
        log_line(f"rank {task['rank']}: the agent does not respond: {error}")
        return False
    return True


class _Agent:
    """A connection to the agent, until a deadline."""

    def __init__(self, task: Message, deadline: float) -> None:
        self._decoder = Decoder()
        self._answers: list[Message] = []
        self._deadline = deadline
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._limit()
            self._socket.connect(task["socket"])
            hello: Message = {"type": "hello", "role": "trace"}
            self.send_frame({**hello, "incarnation": task["incarnation"], "rank": task["rank"]})
        except OSError:
            self.close()
            raise

    def send_frame(self, message: Message) -> None:
        """Send a frame."""
        self._limit()
        self._socket.sendall(encode(message))

    def request(self, message: Message) -> Message:
        """Send a frame and return the answer."""
        self.send_frame(message)
        return self.receive()

    def receive(self) -> Message:
        """Return the next frame of the agent that is no `wait`. The agent repeats `wait` while it works."""
        while True:
            while not self._answers:
                self._limit()
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionError("it closed the connection")
                self._answers += self._decoder.feed(data)
            answer = self._answers.pop(0)
            if answer["type"] != "wait":
                return answer

    def _limit(self) -> None:
        """Let the next operation end in time. Raises TimeoutError if the deadline has passed."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time for the file is over")
        self._socket.settimeout(min(left, RESPONSE_SECONDS))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _refused(answer: Message) -> NoTrace:
    return NoTrace(Failure.NOT_STORED, f"the agent refuses it: {answer.get('why') or answer['type']}")


def _order(task: Message) -> Message:
    return {"recording": task["recording"], "attempt": task["attempt"]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
