"""Parses the stack dump that `faulthandler` prints when a hung rank is aborted.

The format is that of CPython 3.9 to 3.14 (`Python/traceback.c`): one block per thread, with the main
thread's block last. In each block, the most recent call is first.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DUMP_BYTES = 64 * 1024
"""Number of bytes at the end of stderr in which the dump is searched. It is large because torch runs dozens
of threads.
"""

_DUMP = re.compile(r"^Fatal Python error: ", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.+)$')
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/(?:python|pypy)3(?:\.\d+)?t?/|^<frozen "
    r"|/convoy_workloads/|/convoy_launch\.py$"
)
"""Pattern of files that the user did not write: packages, the standard library, and Convoy's launcher."""


class Frame(NamedTuple):
    """One call on a thread's stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def main_block(text: str) -> list[str]:
    """Return the lines of the main thread's stack in the newest dump, with the heading first. Return an
    empty list if there is no such stack.
    """
    starts = [found.start() for found in _DUMP.finditer(text)]
    lines = text[starts[-1] :].splitlines() if starts else []
    heads = [number for number, line in enumerate(lines) if _THREAD.match(line)]
    if not heads:
        return []
    head = heads[-1]
    if "..." in lines[head:]:
        # The dump stops after 100 threads. Such a dump has the main thread's stack only if that thread got
        # the signal, which the heading "Current thread" shows.
        head = next((number for number in heads if lines[number].startswith("Current")), -1)
    if head < 0:
        return []
    block = [lines[head]]
    for line in lines[head + 1 :]:
        if not _FRAME.match(line):
            break
        block.append(line)
    return block


def frames(block: list[str]) -> list[Frame]:
    """Return the calls of a thread's stack, the innermost call first."""
    found = (_FRAME.match(line) for line in block)
    return [Frame(one["file"], int(one["line"]), one["function"]) for one in found if one]


def main_line(text: str) -> str:
    """Return a text that says where the main thread was: the innermost call in the user's own code and, if
    different, the innermost call of all.

    Return an empty text if `text` has no dump, or a dump without calls.
    """
    calls = frames(main_block(text))
    if not calls:
        return ""
    own = next((call for call in calls if not _LIBRARY.search(call.file)), calls[0])
    inner = "" if own is calls[0] else f" (in {calls[0]})"
    return f"its main thread is at {own}{inner}"
