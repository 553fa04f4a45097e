"""Messages from a rank to the bench: JSON lines on the original standard output, which libraries also use."""

from __future__ import annotations

import json
import os
import sys
from typing import IO


class Messages:
    """Lines to the bench. From now on whatever else is printed goes to standard error."""

    def __init__(self) -> None:
        self._out: IO[str] = os.fdopen(os.dup(1), "w")
        # The bench hears that this process has ended, whatever a library has forked and left behind.
        os.register_at_fork(after_in_child=self._out.close)
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def value(self, kind: str, value: float) -> None:
        """One measurement: seconds, or bytes where its name says so."""
        self._line({"kind": kind, "value": value})

    def missing(self, kind: str, reason: str) -> None:
        """Report what cannot be measured here."""
        self._line({"kind": kind, "why": reason})

    def _line(self, body: dict[str, object]) -> None:
        print(json.dumps(body), file=self._out, flush=True)
