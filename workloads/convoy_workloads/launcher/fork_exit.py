"""Ends a forked rank as the interpreter would, with an exit code that lets the operator recognize the
cause.

A process that has a torch process group cannot end normally. The group's destructor waits for collectives
with lost peers, and its threads crash when the C library destroys its globals. So a forked rank destroys
neither its process groups nor the modules that it shares with the zygote. The kernel frees their memory.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import Any, NoReturn

from convoy_workloads.runtime.errors import PEER_LOST, exit_code_of
from convoy_workloads.runtime.process_exit import flush_files

_zygote_modules: dict[str, Any] = {}
"""Modules that the zygote has imported, by name."""
_is_fork = False
"""True in a forked rank, which does not destroy the modules in `_zygote_modules`."""


def record_zygote_modules() -> None:
    """Record the modules that the zygote has imported and that its forks share.

    Recording changes the modules' reference counts. So the zygote records them before it forks: in a fork,
    the change would copy the memory pages that the processes share.
    """
    _zygote_modules.update(sys.modules)


def mark_as_fork() -> None:
    """Make `keep_modules` keep the zygote's modules in this process."""
    global _is_fork  # noqa: PLW0603 - a process is a fork or not
    _is_fork = True


def report(error: BaseException) -> None:
    """Report an uncaught error as the interpreter does, then raise SystemExit.

    If the error means a lost peer, exit at once. For KeyboardInterrupt, return instead of raising; the
    interpreter then kills itself with SIGINT, as usual.
    """
    code = exit_code_of(error)
    print_uncaught(error)
    if code == PEER_LOST:
        exit_now(code)
    if isinstance(error, KeyboardInterrupt):
        try:
            # CPython records a KeyboardInterrupt that leaves `exec` of source text. At its end it then kills
            # itself with SIGINT.
            exec("raise KeyboardInterrupt")  # noqa: S102
        except KeyboardInterrupt:
            return
    raise SystemExit(code)


def print_uncaught(error: BaseException) -> None:
    """Pass the error to `sys.excepthook`. The frames below the program's frames are left out."""
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


def exit_now(code: int) -> NoReturn:
    """Run the exit handlers, flush the files and exit at once, without destructors. The exit must be fast,
    because the job restarts only after it.
    """
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        flush_files()
    finally:
        os._exit(code)


def keep_modules() -> None:
    """Keep the interpreter from destroying the modules that the zygote has imported. This is the last exit
    handler to run.

    Destroying these modules would copy every page that is shared with the zygote, which takes half a second
    with torch. The interpreter then also does not flush files that only these modules refer to, so this
    function flushes them.
    """
    if not _is_fork:
        return
    ctypes = sys.modules.get("ctypes")
    # Without ctypes there is no torch. Then there are few modules, so the normal destruction is fast.
    if ctypes is None:
        gc.unfreeze()
        return
    flush_files()
    if len(sys._current_frames()) > 1:
        # Daemon threads run until the interpreter stops them and still need the modules, so leave the modules
        # as they are.
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_zygote_modules))
    for name, module in _zygote_modules.items():
        if name not in ("sys", "builtins", "__main__") and sys.modules.get(name) is module:
            sys.modules[name] = None  # type: ignore[assignment]  # as the interpreter does next


def keep_process_groups() -> None:
    """Keep torch's process groups from being destroyed. This includes groups for which the program has
    called `destroy_process_group`.

    An extra reference keeps each group alive. The C library's own clean-up is skipped, because the groups'
    threads use the library's globals. The exit code does not change, and the buffers of C programs are
    flushed.
    """
    processes = sys.modules.get("convoy_workloads.runtime.processes")
    groups = processes.all_groups() if processes is not None else []
    if not groups:
        return
    import ctypes  # noqa: PLC0415 - torch is imported by now, and needs it too

    for group in groups:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
    library = ctypes.CDLL(None)
    # on_exit runs handlers in reverse order, so fcloseall flushes the buffers first and then _exit ends the
    # process.
    for name in ("_exit", "fcloseall") if hasattr(library, "on_exit") else ():  # Only glibc has on_exit.
        function = getattr(library, name)
        library.on_exit(ctypes.cast(function, ctypes.c_void_p), None)
