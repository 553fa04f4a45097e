"""The program of a probe's child process. Its arguments are NAME ACCELERATOR SECONDS FOLDER.

The child limits its own resources, runs the probe, and writes the result as one line of JSON. It may run in
another interpreter than the agent. It therefore imports only the standard library, numpy and modules of its
probe.
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

MAX_FILE_BYTES = 2**30
"""Maximum bytes of a file that the child may write."""
PARENT = "CONVOY_PROBE_PARENT"
"""Name of the environment variable that contains the agent's pid."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the probe that the arguments name, and write only the result line to stdout."""
    name, accelerator, seconds, folder = sys.argv[1:5]
    # Libraries may print to stdout, so redirect it to stderr and keep a duplicate for the result.
    result = os.dup(1)
    os.dup2(2, 1)
    probe = catalogue.ALL[name]
    _restrict_process()
    os.environ["TMPDIR"] = folder
    line = json.dumps(_measure(probe, int(accelerator), float(seconds))).encode() + b"\n"
    while line:
        line = line[os.write(result, line) :]
    # Exit without the interpreter's shutdown, because the clean-up of a driver may hang.
    os._exit(0)


def _measure(probe: Probe, accelerator: int, seconds: float) -> dict[str, object]:
    try:
        module, function = probe.run.split(":")
        run: Run = getattr(importlib.import_module(module), function)
        if probe.memory:
            limit_memory(probe.memory)
        return {"outcome": "Measured", **dataclasses.asdict(run(accelerator, seconds))}
    except NotAvailable as error:
        return {"outcome": "NotAvailable", "message": str(error)}
    except MemoryError:
        return {
            "outcome": "OutOfMemory",
            "message": f"the probe needs more than its limit of {probe.memory} bytes",
        }
    except Exception as error:
        return {"outcome": "Failed", "message": f"{type(error).__name__}: {error}"}


def _restrict_process() -> None:
    """Lower this process's priority, limit its resources, and make the kernel kill it when the agent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.environ.get(PARENT, str(os.getppid())) != str(os.getppid()):
        os._exit(1)  # the agent died before the prctl call, so no signal will follow
    os.nice(10)
    with contextlib.suppress(OSError):
        # If memory runs out, the kernel shall kill this process instead of the agent.
        Path("/proc/self/oom_score_adj").write_text("1000")
    for what, maximum in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NOFILE, 1024),
    ):
        _limit(what, maximum)


def limit_memory(more: int) -> None:
    """Limit the address space of this process to its current size plus `more` bytes. At the limit, Python
    raises MemoryError.
    """
    left = memory.available()
    more = more if left is None else min(more, left)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, mapped + more)


def _limit(what: int, maximum: int) -> None:
    hard = resource.getrlimit(what)[1]
    maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
    resource.setrlimit(what, (maximum, maximum))
