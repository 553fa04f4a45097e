"""Messages from a rank to the bench, as JSON lines on the original standard output."""

from __future__ import annotations

import json
import os
import sys
from typing import IO


class Messages:
    """Writer of messages. It redirects all other output, such as that of libraries, to standard error."""

    def __init__(self) -> None:
        self._out: IO[str] = os.fdopen(os.dup(1), "w")
        # Close the pipe in forked children. A process left by a library would otherwise hide that this one
        # has ended.
        os.register_at_fork(after_in_child=self._out.close)
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def value(self, kind: str, value: float) -> None:
        """Report a measurement, in seconds, or in bytes if its kind says so."""
        self._line({"kind": kind, "value": value})

    def missing(self, kind: str, reason: str) -> None:
        """Report that a kind cannot be measured here."""
        self._line({"kind": kind, "why": reason})

    def _line(self, body: dict[str, object]) -> None:
        print(json.dumps(body), file=self._out, flush=True)
