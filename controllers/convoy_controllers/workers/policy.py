"""The restart policy of each kind of fault, one entry per reason.

A fault counts against `recovery.maxRestarts` if a program or its environment may repeat it forever. Faults
that the cluster causes do not count. A fault that blames its node makes that node an offender
(`offenders.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.trainingjob_status import RestartScope


@dataclass(frozen=True, slots=True)
class Policy:
    """A job's handling of one kind of fault."""

    counted: bool = True
    """True if the restart counts against `recovery.maxRestarts`."""
    terminal: bool = False
    """True if no restart can heal the fault."""
    scope: RestartScope = RestartScope.PROCESS
    """The scope of the first restart; `escalation.scope` widens it if restarts do not help."""
    blames_node: bool = False
    user_error: bool = False
    """True if the program itself causes the fault. If the fault repeats at the same step, a further restart
    is useless.
    """
    without_steps: bool = False
    """True if a fault of this kind can keep the job from making its first step. Repeated faults then count
    as identical errors although no step is known.
    """
    echo: bool = False
    """True if a fault of this kind is mostly the consequence of another rank's end."""
    lead: float = 0.0
    """Seconds to subtract from the time of a fault of this kind when faults are sorted by time. A fault
    that is never an echo must come first, even if the clocks of nodes differ.
    """

    @property
    def unstarted(self) -> bool:
        """Return True if the pod ends before it can start a rank."""
        return self.without_steps and self.scope is RestartScope.POD


_CLOCK = 2.0
"""Maximum assumed difference between the clocks of two nodes, in seconds."""
_ABORT = 5.0
"""Seconds that the watchdog gives a hung rank to print its stacks. Other ranks notice the end of the rank
only after this time.
"""
_FREE = Policy(counted=False, scope=RestartScope.POD)

POLICIES: Mapping[str, Policy] = {
    reason.name: policy
    for reason, policy in {
        Reasons.RANK_FAILED: Policy(user_error=True),
        Reasons.RANK_OOM: Policy(user_error=True, lead=_CLOCK),
        Reasons.CONTAINER_OOM: Policy(scope=RestartScope.POD, user_error=True),
        Reasons.RANK_KILLED: Policy(blames_node=True, lead=_CLOCK),
        Reasons.RANK_CRASHED: Policy(user_error=True),
        Reasons.RANK_HUNG: Policy(blames_node=True, lead=_ABORT),
        Reasons.RANK_NOT_ENDING: Policy(user_error=True, lead=_ABORT),
        Reasons.ENDED_EARLY: Policy(user_error=True, without_steps=True),
        Reasons.PEER_LOST: Policy(echo=True),
        Reasons.STORE_UNAVAILABLE: Policy(counted=False),
        Reasons.PREEMPTED: Policy(echo=True),
        Reasons.BAD_PARAMS_EXIT: Policy(terminal=True),
        Reasons.DATA_ERROR: Policy(terminal=True),
        Reasons.COMMAND_NOT_FOUND: Policy(terminal=True),
        Reasons.NO_PYTHON: Policy(terminal=True),
        Reasons.POD_LOST: Policy(scope=RestartScope.POD, blames_node=True),
        Reasons.INIT_FAILED: Policy(scope=RestartScope.POD, user_error=True, without_steps=True),
        Reasons.CONTAINER_FAILED: Policy(scope=RestartScope.POD, user_error=True),
        Reasons.CONTAINER_STOPPED: Policy(scope=RestartScope.POD, user_error=True),
        Reasons.POD_DEADLINE: Policy(scope=RestartScope.POD, user_error=True),
        Reasons.STORAGE_LIMIT: Policy(scope=RestartScope.POD, user_error=True),
        Reasons.POD_UNFIT: Policy(scope=RestartScope.POD, user_error=True, without_steps=True),
        Reasons.POD_NOT_ADMITTED: Policy(counted=False, scope=RestartScope.POD, blames_node=True),
        Reasons.POD_DELETED: _FREE,
        Reasons.POD_PREEMPTED: _FREE,
        Reasons.POD_EVICTED: _FREE,
        Reasons.NODE_DRAINED: _FREE,
        Reasons.STRAGGLER_SWAPPED: _FREE,
        Reasons.SUSPECT_SWAPPED: _FREE,
        Reasons.YIELDED: _FREE,
        Reasons.NODE_LOST: Policy(counted=False, scope=RestartScope.POD, blames_node=True),
        Reasons.RESTART_REQUESTED: Policy(counted=False),
        Reasons.REGROW: Policy(counted=False),
        Reasons.STATUS_BEHIND: Policy(counted=False),
    }.items()
}


def policy(reason: Reason) -> Policy:
    """Return the restart policy for this reason. Raises KeyError for a reason that is no fault."""
    return POLICIES[reason.name]
