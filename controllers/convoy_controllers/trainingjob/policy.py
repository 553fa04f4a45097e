"""What each kind of fault costs and replaces: one row per reason.

Counted are faults that a program or its surroundings may repeat for ever; what the cluster does to a job is
free. A fault that blames its node makes that node an offender, see `offenders.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.trainingjob_status import RestartScope


@dataclass(frozen=True, slots=True)
class Policy:
    """The answer to a kind of fault."""

    counted: bool = True
    """Against `recovery.maxRestarts`."""
    terminal: bool = False
    """No restart can heal it."""
    scope: RestartScope = RestartScope.PROCESS
    """What the first restart replaces; `escalation.scope` widens it when nothing gets better."""
    blames_node: bool = False
    user_error: bool = False
    """The program's own doing: at the same step again and again, it is not worth another try."""
    without_steps: bool = False
    """Repeats count as identical errors also before the first step, which is never reached."""
    echo: bool = False
    """Mostly the consequence of another rank's end."""
    lead: float = 0.0
    """Seconds by which it is dated back when causes are ordered: it is never an echo, and clocks differ."""

    @property
    def unstarted(self) -> bool:
        """Return whether its pod never comes as far as the first rank."""
        return self.without_steps and self.scope is RestartScope.POD


_CLOCK = 2.0
"""Between the clocks of two nodes, at most."""
_ABORT = 5.0
"""The watchdog gives a hung rank so long to print its stacks; what its end does to others is not earlier."""
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
        Reasons.NODE_LOST: Policy(counted=False, scope=RestartScope.POD, blames_node=True),
        Reasons.RESTART_REQUESTED: Policy(counted=False),
        Reasons.REGROW: Policy(counted=False),
        Reasons.STATUS_BEHIND: Policy(counted=False),
    }.items()
}


def policy(reason: Reason) -> Policy:
    """The row of a reason; KeyError for one that is no fault's."""
    return POLICIES[reason.name]
