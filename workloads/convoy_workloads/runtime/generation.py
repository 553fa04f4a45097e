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
        """The name of the generation in log lines, and of its folder if it has one."""
        return f"gen-{self.incarnation}-{self.step}"


@dataclass(frozen=True)
class Record:
    """The record of a committed generation. A generation is committed once every rank's part is saved."""

    generation: Generation
    world: int
    """Number of ranks that saved the generation."""
    torch: str
    """Version of torch that saved the generation."""
