"""The inside of a probe's child; its arguments: NAME ACCELERATOR SECONDS FOLDER.

It bounds itself, measures, and writes one line of JSON. It imports the standard library, numpy and what the
probe needs: the interpreter may be another than the agent's.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path

from convoy_agents.guard.sweep import catalogue, memory
from convoy_agents.guard.sweep.probe import NotAvailable, Probe, Run

MOST_FILE = 2**30
"""Bytes of any one file."""
PARENT = "CONVOY_PROBE_PARENT"
"""Environment variable: the agent's process."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Measures what the arguments name. The line is all that is ever written to stdout."""
    name, accelerator, seconds, folder = sys.argv[1:5]
    # Libraries may print: that goes to stderr.
    result = os.dup(1)
    os.dup2(2, 1)
    probe = catalogue.ALL[name]
    _bound()
    os.environ["TMPDIR"] = folder
    line = json.dumps(_measure(probe, int(accelerator), float(seconds))).encode() + b"\n"
    while line:
        line = line[os.write(result, line) :]
    # Not by way of the interpreter's end: a driver's clean-up may hang there.
    os._exit(0)


def _measure(probe: Probe, accelerator: int, seconds: float) -> dict[str, object]:
    try:
        module, function = probe.run.split(":")
        run: Run = getattr(importlib.import_module(module), function)
        if probe.memory:
            bound_memory(probe.memory)
        return {"outcome": "Measured", **dataclasses.asdict(run(accelerator, seconds))}
    except NotAvailable as error:
        return {"outcome": "NotAvailable", "message": str(error)}
    except MemoryError:
        return {"outcome": "OutOfMemory", "message": f"it may take {probe.memory} bytes"}
    except Exception as error:
        return {"outcome": "Failed", "message": f"{type(error).__name__}: {error}"}


def _bound() -> None:
    """Gives way to all else, and dies with the agent and before it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.environ.get(PARENT, str(os.getppid())) != str(os.getppid()):
        os._exit(1)  # it was gone before
    os.nice(10)
    with contextlib.suppress(OSError):
        # When memory runs short the kernel takes this process, not the agent.
        Path("/proc/self/oom_score_adj").write_text("1000")
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MOST_FILE),
        (resource.RLIMIT_NOFILE, 1024),
    ):
        _limit(what, most)


def bound_memory(more: int) -> None:
    """Lets this process map so many bytes more than it does now: beyond is a MemoryError."""
    left = memory.available()
    more = more if left is None else min(more, left)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, mapped + more)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))
