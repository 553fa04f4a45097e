"""Reads the end of a rank's stderr, for messages and to find the root cause of a fault.

Sources of the patterns, as of torch 2.13: gloo's `tcp/pair.cc`, c10d's `TCPStore.cpp`, `socket.cpp` and
`ProcessGroup*.cpp`, `torch/distributed/elastic/rendezvous/api.py`, NCCL's `socket.cc`, CPython's
`faulthandler.c`.
"""

from __future__ import annotations

import re

MAX_GIST_CHARS = 400
"""Maximum number of characters of a rank's stderr in a message. The pod's log has the rest."""

_RANK = r"^(?:\[(?:rank)?\d+\]:\s?)?"
"""Pattern of the prefix that torch's exception hook adds to each line."""
_EXCEPTION = re.compile(
    _RANK + r"(?:[A-Za-z_]\w*\.)*(?P<type>[A-Z]\w*(?:Error|Exception|Interrupt|Exit))\b(?P<text>.*)"
)
_COLLECTIVE = re.compile(r"^(RuntimeError|Dist\w*Error|Rendezvous\w*Error)$")
"""Pattern of the exception types that collectives and torchrun's rendezvous raise. OSError is not among
them, because it shows a problem of the program with another server.
"""
_CHAINED = ("was the direct cause of the following", "During handling of the above exception")
_LOST = re.compile(
    r"connection (was )?(closed|reset|aborted) by (the )?(remote )?peer|connection refused|broken pipe"
    r"|connection was likely closed|has been closed by|gloo/transport|pair closure"
    r"|timed out (waiting|after|connecting|in monitoredbarrier)|failed to pass monitoredbarrier"
    r"|(socket|wait|read|connection|collective operation) time-?out|has timed out after"
    r"|failed or timed out|watchdog (caught|thread terminated|got stuck)|heartbeat monitor timed out"
    r"|communicator was aborted|ncclRemoteError|remote process exited|(recv|send)(value|bytes)? failed on"
    r"|Rendezvous(Timeout|Closed|Connection)Error",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"timed? ?-?out|watchdog|heartbeat monitor", re.IGNORECASE)
_LIBRARY = re.compile(
    r"gloo|nccl|\brccl\b|c10d|c10::|torch\.distributed|ProcessGroup|TCPStore|Dist\w+Error|remote worker"
    r"|monitoredBarrier",
    re.IGNORECASE,
)
"""Pattern of the names that show that a collective library wrote the line. It is used for lines that are no
exception.
"""
_WARNING = re.compile(_RANK + r"\[W[\d ]")
"""Pattern of warnings by c10d, for example for each failed attempt to connect to a peer that is not up yet.
"""
_DUMP = re.compile(r"^(Fatal Python error:|(Current thread|Thread) 0x)")
_NOISE = re.compile(r"^(terminate called without an active exception|Aborted\b|Extension modules:)")
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*most recent call first")
_FRAME = re.compile(r'^\s+File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_QUOTED = re.compile(
    r"^.*\bmain thread is at (?P<place>(?P<own>.+?):\d+ in [^\s(]+(?: \(in (?P<inner>.+?):\d+ in [^)]+\))?)"
)
"""Pattern of the launcher's first line about a hung rank. The line names a place in the user's code, and
the function that is called at this place.
"""
_WAITING = re.compile(
    r"(torch|convoy_workloads)/(distributed/|autograd/graph\.py|nn/parallel/distributed\.py|cuda/__init__\.py)"
)
"""Pattern of source files. A thread whose innermost frame is in such a file waits for other ranks, or for a
device that itself waits for other ranks.
"""
_FRAMES_CHECKED = 3
"""Number of innermost frames that are compared with `_WAITING`."""


def gist(stderr: str) -> str:
    """Return the most useful part of the end of a rank's stderr.

    This is the last line that is not indented, and all indented lines below it. At the end of a traceback,
    that line names the error. Stack dumps are skipped, and so is the output of the C++ runtime after an
    error.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    body, dump = _split(lines)
    text = _last_block(body)
    if dump and not _EXCEPTION.match(text):
        # A crash prints only the dump. All output before the dump is the program's normal progress, so it is
        # not shown.
        place = _place(dump)
        text = dump[0] + (f" at {place}" if place else "") if dump[0].startswith("Fatal") else text or place
    return (text or _last_block(lines))[:MAX_GIST_CHARS]


def lost_peer(stderr: str) -> bool:
    """Return True if the last error, or one that it was raised from, shows a lost or unresponsive peer."""
    return bool(_lost_words(stderr))


def timed_out(stderr: str) -> bool:
    """Return True if the last error shows that a peer did not reply in time. The peer may be alive and
    hang.
    """
    return bool(_TIMED_OUT.search(_lost_words(stderr)))


def main_thread(stderr: str) -> str:
    """Return `FILE:LINE in FUNCTION` of the main thread of an aborted rank; empty if not known.

    The place comes from the launcher's line about the hung rank. Without that line, it comes from the last
    stack of the dump, if the dump is complete.
    """
    if quoted := _QUOTED.match(stderr):
        return quoted["place"]
    return _place(_split(stderr.splitlines())[1])


def waits_for_others(stderr: str) -> bool | None:
    """Return True if the main thread was in a collective, False if it was not, None if not known."""
    files = [frame["file"] for frame in _main_frames(_split(stderr.splitlines())[1])[:_FRAMES_CHECKED]]
    if not files and (quoted := _QUOTED.match(stderr)):
        files = [quoted["inner"] or quoted["own"]]
    return any(_WAITING.search(file) for file in files) if files else None


def _lost_words(stderr: str) -> str:
    """Return the line that shows a lost peer; empty if there is none."""
    body, _ = _split([line for line in stderr.splitlines() if line.strip()])
    errors = [number for number, line in enumerate(body) if _EXCEPTION.match(line)]
    last = errors[-1] if errors else -1
    # C++ code such as the c10d watchdog or std::terminate prints after the exception, or without one. The
    # lines after the last exception are therefore checked first.
    errors_of_libraries = [line for line in body[last + 1 :] if not _WARNING.match(line)]
    tail = [line for line in errors_of_libraries if _LIBRARY.search(line) and _LOST.search(line)]
    if tail:
        return tail[-1]
    for number in reversed(errors):
        found = _EXCEPTION.match(body[number])
        collective = found is not None and (
            _COLLECTIVE.match(found["type"]) or _LIBRARY.search(found["text"])
        )
        if collective and _LOST.search(body[number]):
            return body[number]
        before = max((error for error in errors if error < number), default=number)
        if not any(mark in line for line in body[before:number] for mark in _CHAINED):
            return ""
    return ""


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the printed text and the stack dump that follows it. The interpreter's closing lines are
    removed from both.
    """
    start = next((number for number, line in enumerate(lines) if _DUMP.match(line)), len(lines))
    body, dump = lines[:start], lines[start:]
    return [line for line in body if not _NOISE.match(line)], [
        line for line in dump if not _NOISE.match(line)
    ]


def _last_block(lines: list[str]) -> str:
    last = max((number for number, line in enumerate(lines) if not line[0].isspace()), default=0)
    # Leave out the line in which Pydantic links to its manual.
    kept = [line.strip() for line in lines[last:] if "For further information visit" not in line]
    return " ".join(kept)


def _main_frames(dump: list[str]) -> list[re.Match[str]]:
    """Return the frames of the dump's last stack, innermost first."""
    start = max((number for number, line in enumerate(dump) if _THREAD.match(line)), default=len(dump))
    return [frame for line in dump[start + 1 :] if (frame := _FRAME.match(line))]


def _place(dump: list[str]) -> str:
    frame = next(iter(_main_frames(dump)), None)
    return f"{frame['file']}:{frame['line']} in {frame['function']}" if frame else ""
