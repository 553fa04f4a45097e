"""The program of a probe's child process. Arguments: NAME ACCELERATOR SECONDS FOLDER.

The child limits its own resources, measures, and writes one line of JSON. It imports only the standard
library, numpy and modules of its probe, because its interpreter may differ from the agent's.
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
"""Maximum bytes of a file."""
PARENT = "CONVOY_PROBE_PARENT"
"""Environment variable with the agent's pid."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the probe that the arguments name. Write the result line, and nothing else, to stdout."""
    name, accelerator, seconds, folder = sys.argv[1:5]
    # Redirect stdout to stderr, because libraries may print.
    result = os.dup(1)
    os.dup2(2, 1)
    probe = catalogue.ALL[name]
    _restrict_process()
    os.environ["TMPDIR"] = folder
    line = json.dumps(_measure(probe, int(accelerator), float(seconds))).encode() + b"\n"
    while line:
        line = line[os.write(result, line) :]
    # Skip the interpreter's shutdown, because a driver's clean-up may hang.
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
    """Lower this process's priority, limit its resources, and make it die with the agent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.environ.get(PARENT, str(os.getppid())) != str(os.getppid()):
        os._exit(1)  # the agent died before the prctl call
    os.nice(10)
    with contextlib.suppress(OSError):
        # If memory runs out, the kernel kills this process instead of the agent.
        Path("/proc/self/oom_score_adj").write_text("1000")
    for what, maximum in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NOFILE, 1024),
    ):
        _limit(what, maximum)


def limit_memory(more: int) -> None:
    """Limit the additional address space of this process to `more` bytes. Beyond that, Python raises
    MemoryError.
    """
    left = memory.available()
    more = more if left is None else min(more, left)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, mapped + more)


def _limit(what: int, maximum: int) -> None:
    hard = resource.getrlimit(what)[1]
    maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
    resource.setrlimit(what, (maximum, maximum))
