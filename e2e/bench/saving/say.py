"""What a rank tells the bench: JSON lines on what was its standard output, which libraries write to too."""

from __future__ import annotations

import json
import os
import sys
from typing import IO


class Said:
    """Lines to the bench. From now on whatever else is printed goes to standard error."""

    def __init__(self) -> None:
        self._out: IO[str] = os.fdopen(os.dup(1), "w")
        os.set_inheritable(self._out.fileno(), False)
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def value(self, kind: str, value: float) -> None:
        """One measurement: seconds, or bytes where its name says so."""
        self._line({"kind": kind, "value": value})

    def missing(self, kind: str, why: str) -> None:
        """What cannot be measured here."""
        self._line({"kind": kind, "why": why})

    def _line(self, body: dict[str, object]) -> None:
        print(json.dumps(body), file=self._out, flush=True)
