"""The termination message of the container, in which the launcher leaves the job's result."""
# ruff: noqa: PTH123 - PID 1 keeps its imports few

from __future__ import annotations

import contextlib

TERMINATION_LOG = "/dev/termination-log"
"""File that the kubelet reads at the end of the container. The pod template may name another file."""


def leave_result(result: str) -> None:
    """Write the job's result to the termination message, unless it is empty.

    The operator reads the message if the agent could not report the result. Outside a Kubernetes container
    the file does not exist, and nothing is written.
    """
    if result:
        with contextlib.suppress(OSError), open(TERMINATION_LOG, "r+", encoding="utf-8") as log:
            log.write(result)
