"""What the states of a run are called, and what is known of one that a run may go on from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Generation:
    """The state after `step` steps, saved by `incarnation`."""

    incarnation: int
    step: int

    @property
    def name(self) -> str:
        """For people, and of its folder where it has one."""
        return f"gen-{self.incarnation}-{self.step}"


@dataclass(frozen=True)
class Record:
    """A committed generation: every rank's part was there when this was written."""

    generation: Generation
    world: int
    """Ranks that saved it."""
    torch: str
    """Version of torch that saved it."""
