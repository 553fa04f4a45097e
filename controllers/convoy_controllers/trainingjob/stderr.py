"""The end of a rank's stderr, read for a person and for the search of a cause.

Sources of the words, as of torch 2.13: gloo's `tcp/pair.cc`, c10d's `TCPStore.cpp`, `socket.cpp` and
`ProcessGroup*.cpp`, NCCL's `socket.cc`, CPython's `faulthandler.c`.
"""

from __future__ import annotations

import re

GIST = 400
"""Characters of a rank's stderr in a message; all that is left of it is in the pod's log."""

_RANK = r"^(?:\[(?:rank)?\d+\]:\s?)?"
"""Prefix that torch's exception hook gives each line."""
_EXCEPTION = re.compile(
    _RANK + r"(?:[A-Za-z_]\w*\.)*(?P<type>[A-Z]\w*(?:Error|Exception|Interrupt|Exit))\b(?P<text>.*)"
)
_COLLECTIVE = re.compile(r"^(RuntimeError|Dist\w*Error)$")
"""Types that collectives raise. An OSError is the program's own trouble with somebody else's server."""
_CHAINED = ("was the direct cause of the following", "During handling of the above exception")
_LOST = re.compile(
    r"connection (was )?(closed|reset|aborted) by (the )?(remote )?peer|connection refused|broken pipe"
    r"|connection was likely closed|has been closed by|gloo/transport|pair closure"
    r"|timed out (waiting|after|connecting|in monitoredbarrier)|failed to pass monitoredbarrier"
    r"|(socket|wait|read|connection|collective operation) time-?out|has timed out after"
    r"|failed or timed out|watchdog (caught|thread terminated|got stuck)|heartbeat monitor timed out"
    r"|communicator was aborted|ncclRemoteError|remote process exited|(recv|send)(value|bytes)? failed on",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"timed? ?-?out|watchdog|heartbeat monitor", re.IGNORECASE)
_LIBRARY = re.compile(
    r"gloo|nccl|\brccl\b|c10d|c10::|torch\.distributed|ProcessGroup|TCPStore|Dist\w+Error|remote worker"
    r"|monitoredBarrier",
    re.IGNORECASE,
)
"""Names by which a line that is no exception shows that a collective library wrote it."""
_WARNING = re.compile(_RANK + r"\[W[\d ]")
"""c10d's warnings, such as of each attempt to connect to a peer that is not up yet."""
_DUMP = re.compile(r"^(Fatal Python error:|(Current thread|Thread) 0x)")
_NOISE = re.compile(r"^(terminate called without an active exception|Aborted\b|Extension modules:)")
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*most recent call first")
_FRAME = re.compile(r'^\s+File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_QUOTED = re.compile(
    r"^.*\bmain thread is at (?P<place>(?P<own>.+?):\d+ in [^\s(]+(?: \(in (?P<inner>.+?):\d+ in [^)]+\))?)"
)
"""The launcher's own first line about a rank that hangs: the user's code, and what that has called."""
_WAITING = re.compile(
    r"(torch|convoy_workloads)/(distributed/|autograd/graph\.py|nn/parallel/distributed\.py|cuda/__init__\.py)"
)
"""Files whose innermost frame means that the thread waits for other ranks or for a device that does."""
_INNERMOST = 3
"""Frames in which a wait for others shows."""


def gist(stderr: str) -> str:
    """The end of a rank's stderr that says the most: its last line, which of a traceback names the error,
    with what is indented below it. Stack dumps and what the C++ runtime prints behind an error do not count.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    body, dump = _split(lines)
    said = _last_block(body)
    if dump and not _EXCEPTION.match(said):
        # A crash says nothing else; what was printed before it is the program's progress.
        place = _place(dump)
        said = dump[0] + (f" at {place}" if place else "") if dump[0].startswith("Fatal") else said or place
    return (said or _last_block(lines))[:GIST]


def lost_peer(stderr: str) -> bool:
    """Return whether its last error, or one that this was raised from, tells of a peer that has gone or does
    not reply.
    """
    return bool(_lost_words(stderr))


def timed_out(stderr: str) -> bool:
    """Return whether a peer did not answer in time, so that it may live and hang."""
    return bool(_TIMED_OUT.search(_lost_words(stderr)))


def main_thread(stderr: str) -> str:
    """FILE:LINE in FUNCTION of the main thread of a rank that was aborted; empty where nothing tells.

    The launcher quotes it; else the last stack of the dump is the main thread's, if all of it is there.
    """
    if quoted := _QUOTED.match(stderr):
        return quoted["place"]
    return _place(_split(stderr.splitlines())[1])


def waits_for_others(stderr: str) -> bool | None:
    """Return whether its main thread was in a collective; None where nothing tells."""
    files = [frame["file"] for frame in _main_frames(_split(stderr.splitlines())[1])[:_INNERMOST]]
    if not files and (quoted := _QUOTED.match(stderr)):
        files = [quoted["inner"] or quoted["own"]]
    return any(_WAITING.search(file) for file in files) if files else None


def _lost_words(stderr: str) -> str:
    """The line that tells of a lost peer; empty without one."""
    body, _ = _split([line for line in stderr.splitlines() if line.strip()])
    errors = [number for number, line in enumerate(body) if _EXCEPTION.match(line)]
    last = errors[-1] if errors else -1
    # C++ prints behind the exception, or without one: c10d's watchdog, std::terminate.
    errors_of_libraries = [line for line in body[last + 1 :] if not _WARNING.match(line)]
    tail = [line for line in errors_of_libraries if _LIBRARY.search(line) and _LOST.search(line)]
    if tail:
        return tail[-1]
    for number in reversed(errors):
        found = _EXCEPTION.match(body[number])
        told = found is not None and (_COLLECTIVE.match(found["type"]) or _LIBRARY.search(found["text"]))
        if told and _LOST.search(body[number]):
            return body[number]
        before = max((error for error in errors if error < number), default=number)
        if not any(mark in line for line in body[before:number] for mark in _CHAINED):
            return ""
    return ""


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the printed text and the stack dump behind it. The interpreter's last words are in neither."""
    start = next((number for number, line in enumerate(lines) if _DUMP.match(line)), len(lines))
    body, dump = lines[:start], lines[start:]
    return [line for line in body if not _NOISE.match(line)], [
        line for line in dump if not _NOISE.match(line)
    ]


def _last_block(lines: list[str]) -> str:
    last = max((number for number, line in enumerate(lines) if not line[0].isspace()), default=0)
    # Pydantic's own pointer to its manual.
    kept = [line.strip() for line in lines[last:] if "For further information visit" not in line]
    return " ".join(kept)


def _main_frames(dump: list[str]) -> list[re.Match[str]]:
    """Frames of the dump's last stack, innermost first."""
    start = max((number for number, line in enumerate(dump) if _THREAD.match(line)), default=len(dump))
    return [frame for line in dump[start + 1 :] if (frame := _FRAME.match(line))]


def _place(dump: list[str]) -> str:
    frame = next(iter(_main_frames(dump)), None)
    return f"{frame['file']}:{frame['line']} in {frame['function']}" if frame else ""
