"""The training program of a simulated job: its steps, its checkpoints, and its reaction to a lost peer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from convoy_controllers.simulate.latencies import Seconds
from convoy_crds.meta import Model


class Program(Model):
    """A training program. Times are seconds."""

    step_seconds: Annotated[float, Field(gt=0, le=3600)] = 0.5
    """Duration of a step, equal for all ranks."""
    total_steps: Annotated[int, Field(ge=1)] = 10_000
    """Number of steps after which all ranks exit with code 0."""
    fails_at_step: Annotated[int, Field(ge=0)] = 0
    """Step after which rank 0 exits with code 1, in every incarnation that reaches the step; 0 for never."""
    join_seconds: Seconds = 0.2
    """Time from the start of the last rank to the complete process group."""
    restore_seconds: Seconds = 0.5
    """Time to read a checkpoint before the first step."""
    save_seconds: Seconds = 0.2
    """Time that a checkpoint pauses the steps."""
    commit_seconds: Seconds = 0.5
    """Time from the end of a checkpoint's pause to the commit with all copies."""
    peer_exit_seconds: Seconds = 0.1
    """Time from a rank's failure to the exit of its peers. The peers notice the failure by their reset
    connections.
    """
    peer_timeout_seconds: Seconds = 0.0
    """Time after which ranks give up a peer that is cut off without a reset connection; 0 for never."""
    peer_lost_code: Annotated[int, Field(ge=1, le=255)] = 76
    """Exit code of a rank that has lost a peer."""
    saves_on_term: bool = True
    """True if ranks save a checkpoint on SIGTERM and exit with code 75. If False, the signal ends them."""
    independent_seconds: Seconds = 0.0
    """Time after which the program of a pod of an Independent role exits with code 0; 0 for never."""
    endless_roles: list[str] = Field(default_factory=list)
    """Roles whose ranks continue to run after the last step."""
