"""Writes the output of a local run: the ranks' lines and the progress. The progress of each step is shown
only once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import TextIO

MAX_REMEMBERED = 64
_FIRST_RANK = re.compile(r"\[\d+/0\] (.*)")
_RATE = re.compile(r"  [0-9.]+ samples/s$")


def without_rate(line: str) -> str:
    """Return a line about a step without its rate. The rate differs between the line of rank 0 and Convoy's
    line about the same step.
    """
    return _RATE.sub("", line)


class Screen:
    """Writes the output of a local run. Rank 0 may print its progress itself, so a second line about the
    same step is left out.

    `on_closed` is called once, when the output can no longer be written because its reader has closed it.
    """

    def __init__(self, out: TextIO, on_closed: Callable[[], None]) -> None:
        self._out = out
        self._on_closed = on_closed
        self._closed = False
        self._shown: deque[str] = deque(maxlen=MAX_REMEMBERED)
        self._printed: deque[str] = deque(maxlen=MAX_REMEMBERED)

    def write_line(self, text: str) -> None:
        """Write a line that Convoy itself, not a rank, has to report."""
        self._print(text)

    def reset(self) -> None:
        """Clear the record of lines about steps. A new incarnation repeats steps, whose lines must be shown
        again.
        """
        self._shown.clear()
        self._printed.clear()

    def progress(self, text: str) -> None:
        """Write a line about the progress, unless a line about the same step was already written."""
        about = without_rate(text)
        if about not in self._printed and about not in self._shown:
            self._shown.append(about)
            self.write_line(text)

    def rank_line(self, line: bytes) -> None:
        """Write a line of a rank, with the prefix that the launcher has added. Leave it out if a line about
        the same step was already written.
        """
        text = line.decode(errors="replace").rstrip("\n")
        first = _FIRST_RANK.fullmatch(text)
        if first:
            about = without_rate(first[1])
            if about in self._shown:
                return
            self._printed.append(about)
        self._print(text)

    def _print(self, text: str) -> None:
        if self._closed:
            return
        try:
            print(text, file=self._out, flush=True)
        except OSError:
            self._closed = True
            self._on_closed()
