"""Parameters of the simulator recovery."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.program import Program
from convoy_crds.meta import Duration, Model
from convoy_crds.trainingjob import Recovery

Rate = Annotated[float, Field(ge=0, le=3600)]


class FaultRates(Model):
    """Mean numbers of faults in an hour. The seed gives their times and targets."""

    kill_rank: Rate = 0.0
    """Ranks that SIGKILL ends."""
    kill_pod: Rate = 0.0
    """Pods that are deleted."""
    node_loss: Rate = 0.0
    """Nodes that lose their power."""


class Params(Model):
    """A TrainingJob, its nodes and its faults."""

    nodes: Annotated[int, Field(ge=1, le=64)] = 5
    """Number of nodes, with room for one pod each. Nodes beyond `replicas` are spare."""
    replicas: Annotated[int, Field(ge=1, le=64)] = 4
    """Number of pods of the job, with one rank each."""
    recovery: Recovery = Field(default_factory=Recovery)
    """The job's `spec.recovery`."""
    checkpoint_interval: Duration = "60s"
    """The job's `spec.checkpoint.interval`."""
    peer_copies: Annotated[int, Field(ge=0, le=4)] = 1
    """Number of copies of each checkpoint in the memory of other nodes; 0 for none."""
    program: Program = Field(default_factory=lambda: Program(total_steps=3600))
    """The training program: its steps, and the times of its saves and restarts."""
    latencies: Latencies = Field(default_factory=Latencies)
    """Latencies of the cluster."""
    faults: FaultRates = Field(default_factory=FaultRates)
    node_return_seconds: Annotated[float, Field(ge=1, le=86_400)] = 300.0
    """Time after which a lost node has power again."""
    seconds: Annotated[float, Field(ge=60, le=86_400)] = 7200.0
    """Virtual time after which the run ends although the job has not."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.replicas > self.nodes:
            raise ValueError(f"replicas: must be at most nodes, {self.nodes}: each node has room for one pod")
        if self.peer_copies and self.replicas < 2:
            raise ValueError("peerCopies: a job of one pod has no peer for copies; set it to 0")
        return self
