"""How a rank ends that cannot go on."""

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
    """Ends the process with the exit code of `error`, its stack trace on stderr.

    At once: an interpreter that winds down joins threads of a process group whose peers may be gone, for
    minutes. Open files are written, no exit handler or destructor runs.
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
    """Writes out what open files of this process still hold in their buffers."""
    for stream in gc.get_objects():
        if isinstance(stream, (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            with contextlib.suppress(Exception):  # closed, detached, or a pipe without a reader
                stream.flush()
