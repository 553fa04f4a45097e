"""Reasons why a program is not executed, in words that say what to do about it."""

from __future__ import annotations

import errno
import os

_FIRST_LINE = 256
"""Bytes of a script's first line that the kernel reads (execve(2))."""


def not_found(name: str) -> str:
    """Return advice about a command that is not there; empty without any."""
    if any(letter.isspace() for letter in name):
        return '. It is one word: make each word an item of the list, or run it by [sh, -c, "..."]'
    return ""


def not_executable(path: str) -> str:
    """Return advice about a file that may not be executed; empty for a folder."""
    if not os.path.isfile(path):  # noqa: PTH113 - as execvp sees paths
        return ""
    return ". Make it executable (defaultMode: 0755 of a ConfigMap), or put its interpreter before it"


def refused(path: str, error: OSError) -> str:
    """Return why the kernel does not execute a file that may be."""
    words = error.strerror or "unknown error"
    line = _first_line(path)
    if error.errno == errno.ENOENT and line.startswith(b"#!"):
        interpreter = line[2:].split(maxsplit=1)[0:1] or [b""]
        name = interpreter[0].decode(errors="replace")
        if line.endswith(b"\r"):
            return f"{words}. Its lines end as on Windows: convert it (sed -i 's/\\r$//')"
        return f"{words}. Its first line names the interpreter {name}, which is not there"
    if error.errno == errno.ENOEXEC and line and not line.startswith((b"#!", b"\x7fELF")):
        return f"{words}. It needs a first line that names its interpreter, such as #!/bin/sh"
    if error.errno == errno.ENOEXEC and line.startswith(b"\x7fELF"):
        return f"{words}. It is built for another kind of processor than {os.uname().machine}"
    return words


def _first_line(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as execvp sees paths
            return file.readline(_FIRST_LINE).rstrip(b"\n")
    except OSError:
        return b""
