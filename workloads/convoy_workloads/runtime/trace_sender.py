"""The process that converts and sends a trace (traces/send.py), and the thread that waits for its end.

The process may end in any way, as by the kernel if the pod has no memory left. Each end without a stored
trace is reported: by the process itself if it can, and otherwise by the thread.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import convoy_workloads
from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.trace_protocol import REPORTED, STORED, UNREPORTED, Failure

SENDER_SECONDS = 280.0
"""Maximum seconds of the conversion and all attempts to send. The operator waits a little longer."""
KILL_SECONDS = 10.0
"""Maximum seconds until a killed process has ended."""


class TraceSender:
    """A process that sends the trace in a folder. At its end the folder is removed."""

    def __init__(self, folder: Path, task: Message, report: Callable[[Failure, str], None]) -> None:
        """Start the process. Raises OSError.

        `report`: called by another thread, at most once, if the trace is not stored and the process has not
        told the agent why.
        """
        self._folder = folder
        self._report = report
        self._stopped = ""
        """Cause why the process was stopped; empty if it was not."""
        command = [sys.executable, "-m", "convoy_workloads.traces.send", json.dumps(task)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=folder, env=_environment())
        self._thread = threading.Thread(target=self._watch, name="convoy-trace-sender", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the end of the process. Return True if it has ended, and is reported."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self, why: str) -> None:
        """Kill the process, and report that the trace is not stored because of `why`. Do nothing if it has
        ended.
        """
        self._stopped = why
        self._process.kill()
        self._thread.join(KILL_SECONDS)

    def _watch(self) -> None:
        try:
            code = self._process.wait(SENDER_SECONDS)
        except subprocess.TimeoutExpired:
            self._stopped = f"it was not stored within {SENDER_SECONDS:.0f} s"
            self._process.kill()
            code = self._process.wait()
        if code not in (STORED, REPORTED):
            self._report(*self._cause(code))
        shutil.rmtree(self._folder, ignore_errors=True)

    def _cause(self, code: int) -> tuple[Failure, str]:
        """Return the failure of which the agent does not know yet."""
        if self._stopped:
            return Failure.NOT_STORED, self._stopped
        if code == UNREPORTED:
            return Failure.NOT_STORED, "the agent did not respond; the log of the rank has the cause"
        if code >= 0:
            return Failure.NOT_RECORDED, f"the conversion ended with exit code {code}"
        more = ", as if the pod had no memory left" if -code == signal.SIGKILL else ""
        return Failure.NOT_RECORDED, f"the conversion was ended by signal {-code}{more}"


def _environment() -> dict[str, str]:
    """Return an environment in which another Python finds this package."""
    root = str(Path(convoy_workloads.__file__ or "").resolve().parents[1])
    path = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
