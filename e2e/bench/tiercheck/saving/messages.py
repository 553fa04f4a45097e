"""Sends messages from a rank to the bench, as JSON lines on the process's original standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import IO, TypeVar

from e2e.bench.tiercheck.saving import usage

T = TypeVar("T")

BEGIN, DONE = ": begin", ": done"
"""Ends of the kinds of messages between which the agent measures what it uses."""
RANK, AGENT = "rank", "agent"


class Messages:
    """Writes messages. It redirects all other output, such as that of libraries, to standard error."""

    def __init__(self) -> None:
        self._out: IO[str] = os.fdopen(os.dup(1), "w")
        # Close the pipe in forked children. Otherwise the bench would not see that this process has ended
        # while a child of a library still runs.
        os.register_at_fork(after_in_child=self._out.close)
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def value(self, kind: str, value: float) -> None:
        """Report a measurement. Its unit is seconds, unless its kind names another unit."""
        self._line({"kind": kind, "value": value})

    def missing(self, kind: str, reason: str) -> None:
        """Report that a kind cannot be measured on this machine, and why."""
        self._line({"kind": kind, "why": reason})

    def _line(self, body: dict[str, object]) -> None:
        print(json.dumps(body), file=self._out, flush=True)


def profiled(messages: Messages, name: str, work: Callable[[], T], settle: Callable[[], object]) -> T:
    """Do `work` and report what this process has used for it. `settle` waits until the agent has done its
    part.
    """
    messages.value(f"{name}{BEGIN}", 0.0)
    before = usage.used()
    result = work()
    for kind, value in usage.since(before).items():
        messages.value(f"{name}, {RANK}: {kind}", value)
    settle()
    messages.value(f"{name}{DONE}", 0.0)
    return result
