"""`python -m convoy_workloads.bench.tree USAGE COMMAND...`: runs a command and counts its processes.

This process adopts what the command leaves behind (PR_SET_CHILD_SUBREAPER), so that the processor time of
launchers, zygotes and ranks counts even if their parents end first.
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


def main() -> None:
    """Run the command, wait for all of its tree, write wall and processor seconds; exit with its code."""
    usage, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    began = time.perf_counter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    code = subprocess.call(command, stdin=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    _reap()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(usage).write_text(
        json.dumps({"seconds": seconds, "processor_seconds": used.ru_utime + used.ru_stime})
    )
    sys.exit(code)


def _reap() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
