"""Explains why a program cannot be executed, with advice on how to fix it."""

from __future__ import annotations

import errno
import os

_FIRST_LINE = 256
"""Number of bytes of a script's first line that the kernel reads (execve(2))."""


def not_found_advice(name: str) -> str:
    """Return advice for a command that does not exist; an empty text if there is no advice."""
    if any(letter.isspace() for letter in name):
        return '. The name contains spaces: make each word an item of the list, or run [sh, -c, "..."]'
    return ""


def not_executable_advice(path: str) -> str:
    """Return advice for a file that lacks execute permission; an empty text for a folder."""
    if not os.path.isfile(path):  # noqa: PTH113 - as execvp sees paths
        return ""
    return ". Make it executable (for a ConfigMap: defaultMode: 0755), or start it by its interpreter"


def exec_error(path: str, error: OSError) -> str:
    """Return the reason why the kernel refuses to execute a file that has execute permission."""
    words = error.strerror or "unknown error"
    line = _first_line(path)
    if error.errno == errno.ENOENT and line.startswith(b"#!"):
        interpreter = line[2:].split(maxsplit=1)[0:1] or [b""]
        name = interpreter[0].decode(errors="replace")
        if line.endswith(b"\r"):
            return f"{words}. It has Windows line ends: convert it (sed -i 's/\\r$//')"
        return f"{words}. Its first line names the interpreter {name}, which does not exist in this image"
    if error.errno == errno.ENOEXEC and line and not line.startswith((b"#!", b"\x7fELF")):
        return f"{words}. Add a first line that names its interpreter, such as #!/bin/sh"
    if error.errno == errno.ENOEXEC and line.startswith(b"\x7fELF"):
        return f"{words}. It is built for another processor architecture than {os.uname().machine}"
    return words


def _first_line(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as execvp sees paths
            return file.readline(_FIRST_LINE).rstrip(b"\n")
    except OSError:
        return b""
