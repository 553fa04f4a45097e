"""Turns a forked copy of the zygote into a rank. Afterwards the process behaves as if `python FILE` had
started it.
"""
# ruff: noqa: PTH100, PTH123 - as few imports as a fresh interpreter

from __future__ import annotations

import atexit
import os
import random
import signal
import sys
import threading
from typing import Any, NoReturn

from convoy_workloads.launcher import fork_exit, program


def prepare(request: dict[str, Any]) -> program.Program:
    """Turn this process into the rank of `request` and return the program to run.

    If the program cannot be loaded, execute a fresh interpreter instead, because the interpreter reports
    the error best.
    """
    fork_exit.mark_as_fork()
    _reset_signals()
    os.environ.clear()
    os.environ.update(request["environment"])
    _set_identity(request)
    loaded = program.load(request["kind"], request["target"], request["arguments"])
    if loaded is None:
        _execute(request)
    # Exit handlers run in reverse order. Register this one first, so that the program's own handlers run
    # before it.
    atexit.register(fork_exit.keep_process_groups)
    _reset_libraries()
    return loaded


def _reset_signals() -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _set_identity(request: dict[str, Any]) -> None:
    """Set the interpreter's paths, arguments, thread id and process name to the values of the rank."""
    if hasattr(sys, "orig_argv"):  # Python has this attribute from 3.10 on.
        sys.orig_argv = list(request["argv"])
    executable = os.path.abspath(request["executable"])
    if getattr(sys, "_base_executable", "") == sys.executable:
        sys._base_executable = executable  # type: ignore[attr-defined]
    sys.executable = executable
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # it is still the zygote's
    _set_comm("rank-" + os.environ.get("RANK", "?"))


def _reset_libraries() -> None:
    """Reset random generators and thread pools to the state that they have in a fresh process."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    thread_pools = sys.modules.get("convoy_workloads.launcher.thread_pools")
    if thread_pools is not None:
        thread_pools.resize(os.environ)
    if torch is not None:
        _install_step_hook()


def _set_comm(name: str) -> None:
    """Set the process name that `ps` and `top` show. Otherwise every rank would have the zygote's name."""
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write(name)
    except OSError:
        pass


def _install_step_hook() -> None:
    """Install the optimizer hook, which reports the steps of a program that does not use Convoy's API.

    An error in the installation must not end the program.
    """
    try:
        from convoy_workloads.runtime import hooks, rank_context  # noqa: PLC0415

        hook = hooks.install(rank_context.from_environment(os.environ))
        atexit.register(hook.close)
    except Exception as error:
        print(
            f"convoy: telemetry is off, so Convoy cannot detect steps or hangs of this rank: {error}",
            file=sys.stderr,
        )


def _execute(request: dict[str, Any]) -> NoReturn:
    """Replace this process by a fresh interpreter that runs the same command."""
    # Python ignores SIGPIPE and SIGXFSZ. An executed program would also ignore them, so restore the defaults.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(request["executable"], request["argv"], request["environment"])  # noqa: S606
