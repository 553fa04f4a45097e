"""How a forked rank ends: as the interpreter does, with exit codes that mean something to the operator.

The end of a fresh process is dangerous with a process group of torch: its destructor waits for collectives
whose peers are gone, and threads of a group that is left crash what the C library destroys. A forked rank
leaves its groups, and the modules that it shares with the zygote, to the kernel.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import Any, NoReturn

from convoy_workloads.runtime.errors import PEER_LOST, exit_code_of
from convoy_workloads.runtime.process_exit import flush_files

_warm: dict[str, Any] = {}
"""Modules that the zygote has imported."""
_spares = False
"""True in a fork, which leaves them."""


def note_warm() -> None:
    """Notes the modules that forks will share with this zygote. Counting them in a fork would copy them."""
    _warm.update(sys.modules)


def in_fork() -> None:
    """Makes this process end as a fork."""
    global _spares  # noqa: PLW0603 - a process is a fork or not
    _spares = True


def report(error: BaseException) -> None:
    """Reports an uncaught error of the program as the interpreter does, then raises SystemExit.

    A lost peer ends the rank at once. KeyboardInterrupt returns, and the process dies of SIGINT.
    """
    code = exit_code_of(error)
    print_uncaught(error)
    if code == PEER_LOST:
        leave(code)
    if isinstance(error, KeyboardInterrupt):
        try:
            # The interpreter notes this of source text that it runs, and sends itself SIGINT at its end.
            exec("raise KeyboardInterrupt")  # noqa: S102
        except KeyboardInterrupt:
            return
    raise SystemExit(code)


def print_uncaught(error: BaseException) -> None:
    """Hands the error to `sys.excepthook`, without the frames below the program's."""
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    hook = getattr(sys, "excepthook", None)
    try:
        if hook is None:
            sys.stderr.write("sys.excepthook is missing\n")
            hook = sys.__excepthook__
        sys.audit("sys.excepthook", hook, type(error), error, trace)
        hook(type(error), error, trace)
    except SystemExit:
        raise
    except BaseException as second:
        second.__traceback__ = second.__traceback__.tb_next if second.__traceback__ else None
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(second), second, second.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, trace)


def leave(code: int) -> NoReturn:
    """Ends at once, since recovery waits for it: exit handlers run, files are written, no destructor runs."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        flush_files()
    finally:
        os._exit(code)


def spare_modules() -> None:
    """Leaves what the zygote has imported to the kernel, as the last exit handler.

    Its destruction would copy every page that is shared with the zygote: half a second with torch. A file
    that only such a module refers to is written here.
    """
    if not _spares:
        return
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:  # there is no torch
        gc.unfreeze()
        return
    flush_files()
    if len(sys._current_frames()) > 1:
        return  # daemon threads run on until the interpreter stops them, and would miss the modules
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_warm))
    for name, module in _warm.items():
        if name not in ("sys", "builtins", "__main__") and sys.modules.get(name) is module:
            sys.modules[name] = None  # type: ignore[assignment]  # as the interpreter does next


def spare_groups() -> None:
    """Leaves torch's process groups to the kernel, those that the program has destroyed included.

    Nothing destroys what has one reference too many. What the C library would destroy at its own end stays
    too: the groups' threads use it. The exit code and what C programs have in buffers are kept.
    """
    processes = sys.modules.get("convoy_workloads.runtime.processes")
    groups = processes.all_groups() if processes is not None else []
    if not groups:
        return
    import ctypes  # noqa: PLC0415 - torch is imported by now, and needs it too

    for group in groups:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
    library = ctypes.CDLL(None)
    # The last to register is the first to be called: buffers are written, then all is over.
    for name in ("_exit", "fcloseall") if hasattr(library, "on_exit") else ():  # glibc's
        function = getattr(library, name)
        library.on_exit(ctypes.cast(function, ctypes.c_void_p), None)
