"""The exit codes of a rank, the exceptions that cause them, and the exit codes of all other exceptions."""

from __future__ import annotations

import re

DONE = 0
OTHER = 1
BAD_PARAMS = 10
BAD_DATA = 20
STORE_AWAY = 69
"""Exit code of StoreAway, equal to EX_UNAVAILABLE in sysexits.h."""
PREEMPTED = 75
PEER_LOST = 76
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class ExplainedError(Exception):
    """An error whose message says what is wrong and what to do. Stderr shows it without a stack trace."""


class ParamsError(ExplainedError):
    """The job's parameters are invalid. A restart would not help."""


class DataError(Exception):
    """The training data or the checkpoints cannot be used. A restart would not help."""


class PeerLost(Exception):
    """Another rank has failed, or this rank belongs to an earlier incarnation."""


class StoreAway(Exception):
    """The job's store does not respond, and the newest checkpoint may exist only there."""


class StepAbandoned(ValueError):
    """A rank failed to save this step. In this incarnation no agent accepts the step again, but later steps
    can be saved.
    """


class OtherRankFailed(Exception):
    """An operation that all ranks do together failed on another rank. The message names that rank and the
    reason.
    """


class Interrupted(SystemExit):
    """The job was told to stop by SIGTERM. If the job keeps checkpoints, the state was saved before this is
    raised. The exit code is 75.
    """

    def __init__(self) -> None:
        super().__init__(PREEMPTED)


_DISTRIBUTED = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError"})
_LOST = re.compile(
    r"connection (closed|reset) by peer|connection refused|broken pipe|connection was likely closed"
    r"|timed out (waiting|after)|socket timeout|wait timeout|gloo/transport",
    re.IGNORECASE,
)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that reports `error` to the operator.

    Collectives raise plain RuntimeErrors, so a lost peer is recognised by the texts of gloo and c10d.
    OSErrors do not count as a lost peer: a refused connection to another server is an error of the program
    itself.
    """
    if isinstance(error, SystemExit):
        return _of_system_exit(error.code)
    if isinstance(error, ParamsError):
        return BAD_PARAMS
    if isinstance(error, DataError):
        return BAD_DATA
    if isinstance(error, PeerLost):
        return PEER_LOST
    if isinstance(error, StoreAway):
        return STORE_AWAY
    if isinstance(error, KeyboardInterrupt):
        return 130
    distributed = type(error).__name__ in _DISTRIBUTED
    if (distributed or isinstance(error, RuntimeError)) and _LOST.search(str(error)):
        return PEER_LOST
    return OTHER


def _of_system_exit(code: object) -> int:
    """Return the exit code that the interpreter uses for `sys.exit(code)`."""
    if code is None:
        return DONE
    return code & 0xFF if isinstance(code, int) else OTHER


_GRAVITY = (BAD_PARAMS, BAD_DATA, NOT_FOUND, NOT_EXECUTABLE)
"""Exit codes that name a specific cause, the most specific first."""


def worst(codes: list[int]) -> int:
    """Return the exit code of the worst outcome among `codes`, the exit codes of several ranks.

    From worst to best: the codes of `_GRAVITY` in their order, any other failure, then 76, 75 and 0.

    >>> worst([0, 76, 137, 76])
    137
    """

    def weight(code: int) -> int:
        if code in _GRAVITY:
            return len(_GRAVITY) - _GRAVITY.index(code) + 3
        return {DONE: 0, PREEMPTED: 1, PEER_LOST: 2}.get(code, 3)

    return max(codes, key=weight, default=DONE)
