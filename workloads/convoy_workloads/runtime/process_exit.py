"""The exit of a rank that cannot continue."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import traceback
from typing import NoReturn

from convoy_workloads.runtime.errors import exit_code_of


def exit_process(error: BaseException) -> NoReturn:
    """End the process with the exit code of `error`, and write its stack trace to stderr.

    The exit is immediate. A normal shutdown of the interpreter joins the threads of the process group,
    which can take minutes if peers have failed. Open files are flushed, but exit handlers and destructors
    do not run.
    """
    code = exit_code_of(error)
    if not isinstance(error, SystemExit):
        traceback.print_exception(type(error), error, error.__traceback__)
    elif error.code is not None and not isinstance(error.code, int):
        print(error.code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    flush_files()
    os._exit(code)


def flush_files() -> None:
    """Flush the buffers of all open files of this process."""
    for stream in gc.get_objects():
        if isinstance(stream, (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            # Ignore the error of a stream that is closed or detached, or of a pipe without a reader.
            with contextlib.suppress(Exception):
                stream.flush()
