"""What a job needs of whatever keeps its states: its nodes' memory (tiers/), or a folder (folder/)."""

from __future__ import annotations

from typing import Any, Protocol

from convoy_workloads.runtime.generation import Record

DECISION_SECONDS = 120.0
"""For a save that every rank has written to be decided, unless its caller says otherwise.

Twice the 60 s after which the agents' calls among each other expire: one that restarts in the middle can ask
again.
"""


class Replay(Protocol):
    """Steps behind a full save, kept as what they were made of."""

    def replay(self, model: Any, optimizer: Any) -> bool:
        """Takes the program's objects, which hold the full save, through them. Whether that made what was
        saved; if not, `pass_over` comes next.
        """
        ...

    def pass_over(self) -> Record:
        """The full save alone, to be loaded anew."""
        ...

    def overlay(self, state: dict[str, Any]) -> None:
        """Reads what no step makes, such as generators and buffers, into the state after the replay."""
        ...


class Checkpointer(Protocol):
    """Of one rank. One save is in flight at a time; each is made by all ranks at the same step."""

    @property
    def incarnation(self) -> int:
        """Under which it saves."""
        ...

    @property
    def marks_the_end(self) -> bool:
        """Whether what the job ends with is saved otherwise than the rest."""
        ...

    @property
    def stall_seconds(self) -> float:
        """For which the newest save held the training up, without what is done once and not at each; 0 before
        the first.
        """
        ...

    @property
    def copy_seconds(self) -> float:
        """Until the newest save that has its copies had them; 0 where none are made."""
        ...

    def due(self) -> bool:
        """Whether this rank wishes a save now."""
        ...

    def busy(self) -> bool:
        """Whether this rank cannot begin a save now."""
        ...

    def ready(self, model: Any, optimizer: Any) -> None:
        """What to go on from is loaded: saves may come. All ranks call it."""
        ...

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Saves `state` beside the training, while no rank is `busy`. Whether it is being saved."""
        ...

    def stage_last(self, state: dict[str, Any], step: int, timeout: float = ..., *, end: bool = False) -> Any:
        """The half of the last save that needs the process group. `end`: the job ends with it."""
        ...

    def finish_last(self, staged: Any, timeout: float = ...) -> bool:
        """The other half, and the decision. Whether the last step is committed."""
        ...

    def choose(self, model: Any = None, optimizer: Any = None) -> Record | None:
        """What all ranks go on from; None to begin at step 0."""
        ...

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Reads the full save of the chosen generation into `state`."""
        ...

    @property
    def journal(self) -> Replay | None:
        """What the chosen generation has behind its full save; None without."""
        ...
