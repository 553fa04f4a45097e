"""Names of failures and exit codes on which the program, the sender of its trace and the agent agree."""

from __future__ import annotations

import enum

from convoy_workloads.runtime.frames import Message

MAX_MESSAGE = 500
"""Maximum characters of the cause of a failure."""
STORED, REPORTED, UNREPORTED = 0, 3, 4
"""Exit codes of the sender: the trace is stored; the agent knows why it is not; the agent knows nothing.
Python itself uses 1 and 2, for programs that it cannot run.
"""


class Failure(enum.Enum):
    """Kinds of failures (hub.proto TraceReport.Failure)."""

    NOT_RECORDED = "NOT_RECORDED"
    """The rank could not record or convert the steps."""
    STEPS_PASSED = "STEPS_PASSED"
    """The rank had begun the first step before the order arrived."""
    TOO_LARGE = "TOO_LARGE"
    """The trace has more bytes than the order allows."""
    NOT_STORED = "NOT_STORED"
    """The trace did not reach the store."""


def failure_frame(recording: int, attempt: int, failure: Failure, why: str) -> Message:
    """Return the frame that tells the agent why a rank has no trace."""
    return {
        "type": "traceFailed",
        "recording": recording,
        "attempt": attempt,
        "failure": failure.value,
        "message": why[:MAX_MESSAGE],
    }
