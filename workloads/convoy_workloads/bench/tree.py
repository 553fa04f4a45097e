"""The command `python -m convoy_workloads.bench.tree USAGE COMMAND...`, which runs a command and measures
its process tree.

This process adopts orphans of the command (PR_SET_CHILD_SUBREAPER). So the processor time of launchers,
zygotes and ranks is counted even if their parents end first. SIGTERM ends the whole tree.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LEFT_SECONDS = 10.0
"""Seconds to wait, after the command has ended, for its other processes to end. Processes that still run
are then killed.
"""


def main() -> None:
    """Run the command and wait until its whole tree has ended. Write the wall time and processor time in
    seconds to USAGE. Exit with the command's exit code.
    """
    usage, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started_at = time.perf_counter()
    try:
        code = subprocess.call(command, stdin=subprocess.DEVNULL)
        seconds = time.perf_counter() - started_at
        _wait_for_the_rest()
    finally:
        _kill_the_rest()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(usage).write_text(
        json.dumps({"seconds": seconds, "processor_seconds": used.ru_utime + used.ru_stime})
    )
    sys.exit(code)


def _wait_for_the_rest() -> None:
    deadline = time.monotonic() + LEFT_SECONDS
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            time.sleep(0.02)


def _kill_the_rest() -> None:
    """Kill children until no child is left. Children of a killed child become children of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
