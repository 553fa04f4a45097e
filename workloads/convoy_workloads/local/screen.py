"""What a local run prints: what the ranks print, and how far they are, each step once."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import TextIO

REMEMBERED = 64
_FIRST_RANK = re.compile(r"\[\d+/0\] (.*)")
_RATE = re.compile(r"  [0-9.]+ samples/s$")


def quantities(line: str) -> str:
    """A line about a step without its rate, which changes from one look to the next."""
    return _RATE.sub("", line)


class Screen:
    """Rank 0 prints some of its steps itself; whichever line about a step comes second is left out.

    When nobody reads any more, `on_closed` is called once.
    """

    def __init__(self, out: TextIO, on_closed: Callable[[], None]) -> None:
        self._out = out
        self._on_closed = on_closed
        self._closed = False
        self._told: deque[str] = deque(maxlen=REMEMBERED)
        self._printed: deque[str] = deque(maxlen=REMEMBERED)

    def say(self, text: str) -> None:
        """A line of our own."""
        self._print(text)

    def form(self) -> None:
        """The steps begin anew."""
        self._told.clear()
        self._printed.clear()

    def progress(self, text: str) -> None:
        """How far the ranks are."""
        about = quantities(text)
        if about not in self._printed and about not in self._told:
            self._told.append(about)
            self.say(text)

    def rank_line(self, line: bytes) -> None:
        """A line of a rank's, as the launcher passes it on."""
        text = line.decode(errors="replace").rstrip("\n")
        first = _FIRST_RANK.fullmatch(text)
        if first:
            about = quantities(first[1])
            if about in self._told:
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
