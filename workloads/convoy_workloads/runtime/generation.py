"""The names and records of the checkpoints of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Generation:
    """One checkpoint of the run: the state after `step` steps, saved by `incarnation`."""

    incarnation: int
    step: int

    @property
    def name(self) -> str:
        """The name for log lines, and for the folder of the generation if it has one."""
        return f"gen-{self.incarnation}-{self.step}"


@dataclass(frozen=True)
class Record:
    """A committed generation. It is committed after every rank's part was saved."""

    generation: Generation
    world: int
    """Number of ranks that saved it."""
    torch: str
    """Version of torch that saved it."""
