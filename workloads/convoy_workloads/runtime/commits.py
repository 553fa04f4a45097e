"""The decision on a generation: every rank's part is durable, so its COMMIT record is written, once, by rank
0.

With an agent the agents of the job decide (they refuse an incarnation when they have seen a later one);
alone, rank 0 decides when it sees every part.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.lineage import Generation

DECISION_SECONDS = 120.0
"""A generation that is not decided so long after this rank was ready gives way to the next save that is due.

Twice the 60 s after which the agents' own calls expire: an agent that restarts in the middle can ask again.
"""

PENDING = "pending"
COMMITTED = "committed"
REFUSED = "refused"
ABANDONED = "abandoned"


@dataclass
class _Vote:
    generation: Generation
    parent: Generation | None
    seal: Callable[[], None]
    since: float = field(default_factory=time.monotonic)
    state: str = PENDING
    recorded: bool = False


class Commits:
    """This rank's part in the decisions. Messages come on the link's thread, saves on the saver's."""

    def __init__(self, rank: int, on_committed: Callable[[Generation], None]) -> None:
        """`on_committed` runs on the thread that learns of it."""
        self._rank = rank
        self._on_committed = on_committed
        self._changed = threading.Condition()
        self._vote: _Vote | None = None
        self._send: Callable[[Message], None] | None = None
        self.stale = False
        """An agent has seen a later incarnation: this rank must leave."""

    def connect(self, send: Callable[[Message], None]) -> None:
        """From here on the agents decide."""
        self._send = send

    def prepare(
        self,
        generation: Generation,
        parent: Generation | None,
        seal: Callable[[], None],
        complete: Callable[[], bool],
    ) -> None:
        """This rank's part is durable. Without agents rank 0 waits here until `complete`, then seals."""
        vote = _Vote(generation, parent, seal)
        with self._changed:
            self._vote = vote
        if self._send is not None:
            self._send(_prepared(vote))
            return
        if self._rank == 0:
            deadline = time.monotonic() + DECISION_SECONDS
            while not complete():
                if time.monotonic() > deadline:
                    self._decide(vote, ABANDONED)
                    return
                time.sleep(0.02)
            seal()
        self._decide(vote, COMMITTED)

    def give_up(self, generation: Generation) -> None:
        """This rank's part of `generation` could not be written."""
        with self._changed:
            self._vote = _Vote(generation, None, lambda: None, state=ABANDONED)
            self._changed.notify_all()

    def abandon(self) -> None:
        """Gives the undecided generation up; a late `commit` for it is not followed."""
        with self._changed:
            if self._vote is not None and self._vote.state == PENDING:
                self._vote.state = ABANDONED
                self._changed.notify_all()

    def overdue(self) -> bool:
        """Whether a generation is undecided for longer than `DECISION_SECONDS`."""
        vote = self._vote
        late = vote is not None and time.monotonic() - vote.since > DECISION_SECONDS
        return late and vote is not None and vote.state == PENDING

    def on_message(self, message: Message) -> None:
        """What the agent says."""
        vote = self._vote
        kind = message["type"]
        if kind == "refused":
            self.stale = True
        if vote is None or _generation(message) != vote.generation or vote.state != PENDING:
            return
        if kind == "commit" and self._rank == 0:
            if not vote.recorded:
                try:
                    vote.seal()
                except Exception as error:
                    print(f"convoy: {vote.generation.name} cannot be sealed: {error}", file=sys.stderr)
                    self._decide(vote, ABANDONED)
                    return
                vote.recorded = True
            if self._send is not None:
                self._send(_recorded(vote))
        elif kind == "committed":
            self._decide(vote, COMMITTED)
        elif kind == "refused":
            self._decide(vote, REFUSED)

    def pending(self) -> list[Message]:
        """What to say again until it is decided or given up."""
        vote = self._vote
        if vote is None or vote.state != PENDING:
            return []
        return [_prepared(vote)] + ([_recorded(vote)] if vote.recorded else [])

    def wait(self, generation: Generation, timeout: float) -> str:
        """The decision on `generation`, or PENDING when `timeout` seconds did not bring one."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                vote = self._vote
                if vote is not None and vote.generation == generation and vote.state != PENDING:
                    return vote.state
                left = deadline - time.monotonic()
                if left <= 0:
                    return PENDING
                self._changed.wait(left)

    def _decide(self, vote: _Vote, state: str) -> None:
        if state == COMMITTED:
            self._on_committed(vote.generation)
        with self._changed:
            vote.state = state
            self._changed.notify_all()


def _generation(message: Message) -> Generation | None:
    try:
        return Generation(int(message["incarnation"]), int(message["step"]))
    except (KeyError, TypeError, ValueError):
        return None


def _prepared(vote: _Vote) -> Message:
    parent = vote.parent
    return {
        "type": "prepared",
        "incarnation": vote.generation.incarnation,
        "step": vote.generation.step,
        "parent": None if parent is None else [parent.incarnation, parent.step],
    }


def _recorded(vote: _Vote) -> dict[str, object]:
    return {"type": "recorded", "incarnation": vote.generation.incarnation, "step": vote.generation.step}
