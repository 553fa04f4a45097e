"""What the ranks of a simulated job run: equal steps, pauses for checkpoints, how it takes a lost peer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from convoy_controllers.simulate.latencies import Seconds
from convoy_crds.meta import Model


class Program(Model):
    """A training program. Times are seconds."""

    step_seconds: Annotated[float, Field(gt=0, le=3600)] = 0.5
    """One step of all ranks together."""
    total_steps: Annotated[int, Field(ge=1)] = 10_000
    """After which all ranks end well."""
    fails_at_step: Annotated[int, Field(ge=0)] = 0
    """After which rank 0 exits with code 1, in every incarnation that comes so far; 0: it does not."""
    join_seconds: Seconds = 0.2
    """From the last rank's start to the process group."""
    restore_seconds: Seconds = 0.5
    """Reading a checkpoint, before the first step after one."""
    save_seconds: Seconds = 0.2
    """For which a checkpoint holds up the steps."""
    commit_seconds: Seconds = 0.5
    """From that pause to the commit, with all copies."""
    echo_seconds: Seconds = 0.1
    """From a rank's end to that of its peers, whose connections are reset."""
    peer_timeout_seconds: Seconds = 0.0
    """After which ranks give up a peer that is cut off, with no word from its kernel; 0: they wait."""
    peer_lost_code: Annotated[int, Field(ge=1, le=255)] = 76
    """With which a rank ends that has lost a peer."""
    saves_on_term: bool = True
    """On SIGTERM its state is saved and it ends with 75; else the signal ends it."""
    endless_roles: list[str] = Field(default_factory=list)
    """Roles whose ranks do not end with the last step."""
