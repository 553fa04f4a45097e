"""Runs a program or waits for a condition, with a deadline in seconds."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO

from e2e.cluster import pipe
from e2e.cluster.errors import ClusterError, CommandError

Input = IO[bytes] | pipe.Writer
"""A program's standard input: a file, or a function that writes to a pipe while the program runs."""


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    deadline: float = 30.0,
    text: str | None = None,
    stdin: Input | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run `argv` for at most `deadline` seconds and return its standard output.

    Raises CommandError with the end of the program's output if the program fails, is missing or takes too
    long. If `stdin` is a function that fails, raises the function's error.
    """
    words = [os.fspath(word) for word in argv]
    program = " ".join(words[:3])
    with pipe.written_by(stdin, deadline) if callable(stdin) else nullcontext(stdin) as source:
        try:
            done = subprocess.run(
                words,
                input=text.encode() if text is not None else None,
                stdin=source if text is None else None,
                capture_output=True,
                timeout=deadline,
                env={**os.environ, **env} if env else None,
                cwd=cwd,
                check=False,
            )
        except FileNotFoundError as error:
            raise CommandError(program, "is not installed; run `make host`", str(error)) from None
        except subprocess.TimeoutExpired as error:
            printed = (error.stderr or b"") + (error.stdout or b"")
            raise CommandError(
                program, f"took longer than {deadline:g} s", printed.decode(errors="replace")
            ) from None
        if done.returncode != 0:
            printed = done.stdout + done.stderr
            raise CommandError(program, f"exit code {done.returncode}", printed.decode(errors="replace"))
    return done.stdout.decode(errors="replace")


def stream(argv: Sequence[str | os.PathLike[str]], *, deadline: float, log: Path, **options: object) -> None:
    """Run a long program with its output in `log`. Raises CommandError with the end of the log if the
    program fails.
    """
    words = [os.fspath(word) for word in argv]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=deadline,
                check=False,
                **options,  # type: ignore[call-overload]
            )
        except FileNotFoundError as error:
            raise CommandError(words[0], "is not installed; run `make host`", str(error)) from None
        except subprocess.TimeoutExpired:
            raise CommandError(words[0], f"took longer than {deadline:g} s (log: {log})", tail(log)) from None
    if done.returncode != 0:
        raise CommandError(" ".join(words[:3]), f"exit code {done.returncode} (log: {log})", tail(log))


def tail(path: Path, characters: int = 2000) -> str:
    """Return the last `characters` of a text file; empty if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - characters))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def wait_for(
    ready: Callable[[], bool],
    *,
    deadline: float,
    what: str,
    every: float = 0.1,
    why: Callable[[], str] | None = None,
) -> None:
    """Poll `ready` every `every` seconds until it returns True.

    Raises ClusterError after `deadline` seconds, with `what` and the text that `why` returns.
    """
    end = time.monotonic() + deadline
    while not ready():
        if time.monotonic() >= end:
            detail = f"\n{why().strip()}" if why else ""
            raise ClusterError(f"timed out after {deadline:g} s: {what}{detail}")
        time.sleep(every)
