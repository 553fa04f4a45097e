"""The exit of a rank that cannot continue."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import traceback
from typing import NoReturn

from convoy_workloads.runtime.errors import ExplainedError, exit_code_of


def exit_process(error: BaseException) -> NoReturn:
    """End the process with the exit code of `error`, and write the error to stderr.

    The exit is immediate. A normal shutdown of the interpreter joins the threads of the process group,
    which can take minutes if peers have failed. Open files are flushed, but exit handlers and destructors
    do not run.
    """
    code = exit_code_of(error)
    if not isinstance(error, SystemExit):
        print_error(error)
    elif error.code is not None and not isinstance(error.code, int):
        print(error.code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    flush_files()
    os._exit(code)


def print_error(error: BaseException) -> None:
    """Write an error to stderr: an ExplainedError as one message, any other with its stack trace."""
    if isinstance(error, ExplainedError):
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    else:
        traceback.print_exception(type(error), error, error.__traceback__)


def flush_files() -> None:
    """Flush the buffers of all open files of this process."""
    for stream in gc.get_objects():
        # `isinstance` asks an object for its `__class__`, and some objects of torch then write a warning.
        if issubclass(type(stream), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            # Ignore the error of a stream that is closed or detached, or of a pipe without a reader.
            with contextlib.suppress(Exception):
                stream.flush()
