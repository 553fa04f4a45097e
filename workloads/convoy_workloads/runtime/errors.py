"""Why a rank ends: its exit codes, the exceptions behind them, and how others are read."""

from __future__ import annotations

import re

DONE = 0
OTHER = 1
BAD_PARAMS = 10
BAD_DATA = 20
STORE_AWAY = 69
"""As EX_UNAVAILABLE of sysexits.h."""
PREEMPTED = 75
PEER_LOST = 76
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class ParamsError(Exception):
    """The parameters cannot be used; starting again would not help."""


class DataError(Exception):
    """The data cannot be used; starting again would not help."""


class PeerLost(Exception):
    """Another rank is gone, or this one belongs to an earlier incarnation."""


class StoreAway(Exception):
    """The job's store does not answer, and what to go on from may be there alone."""


class StepAbandoned(ValueError):
    """A rank could not save this step, so no agent takes it again in this incarnation; a later one may be
    saved.
    """


class OtherRankFailed(Exception):
    """What all ranks do together has failed on another one; the message says on which, and why."""


class Interrupted(SystemExit):
    """The job was asked to leave; its state is saved as far as a checkpoint directory allows."""

    def __init__(self) -> None:
        super().__init__(PREEMPTED)


_DISTRIBUTED = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError"})
_LOST = re.compile(
    r"connection (closed|reset) by peer|connection refused|broken pipe|connection was likely closed"
    r"|timed out (waiting|after)|socket timeout|wait timeout|gloo/transport",
    re.IGNORECASE,
)


def exit_code_of(error: BaseException) -> int:
    """The exit code that tells the operator what `error` means.

    Collectives raise plain RuntimeErrors, so a lost peer is recognised by the words of gloo and c10d.
    OSErrors are not: a refused connection to somebody else's server is the program's own trouble.
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
    """As the interpreter reads `sys.exit(code)`."""
    if code is None:
        return DONE
    return code & 0xFF if isinstance(code, int) else OTHER


_GRAVITY = (BAD_PARAMS, BAD_DATA, NOT_FOUND, NOT_EXECUTABLE)
"""Codes that say most about the cause, first."""


def worst(codes: list[int]) -> int:
    """The one exit code that stands for several ranks: the most telling failure, then 76, then 75, then 0.

    >>> worst([0, 76, 137, 76])
    137
    """

    def weight(code: int) -> int:
        if code in _GRAVITY:
            return len(_GRAVITY) - _GRAVITY.index(code) + 3
        return {DONE: 0, PREEMPTED: 1, PEER_LOST: 2}.get(code, 3)

    return max(codes, key=weight, default=DONE)
