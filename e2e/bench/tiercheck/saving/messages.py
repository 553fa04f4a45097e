"""Sends messages from a rank to the bench, as JSON lines on the process's original standard output."""

from __future__ import annotations

import json
import os
import sys
from typing import IO


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
