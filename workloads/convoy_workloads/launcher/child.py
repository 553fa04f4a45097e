"""The first moments of a forked rank: from the zygote's likeness to what a fresh `python FILE` would be."""
# ruff: noqa: PTH100, PTH123 - as few imports as a fresh interpreter

from __future__ import annotations

import atexit
import os
import random
import signal
import sys
import threading
from typing import Any, NoReturn

from convoy_workloads.launcher import ending, program


def prepare(request: dict[str, Any]) -> program.Program:
    """Turns this process into the rank of the request; the program that is left to run.

    A program that cannot be loaded is executed instead: the interpreter itself reports best what is wrong.
    """
    ending.in_fork()
    _settle_signals()
    os.environ.clear()
    os.environ.update(request["environment"])
    _settle_interpreter(request)
    loaded = program.load(request["kind"], request["target"], request["arguments"])
    if loaded is None:
        _execute(request)
    atexit.register(ending.spare_groups)  # before the program's own handlers: those run first
    _settle_libraries()
    return loaded


def _settle_signals() -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _settle_interpreter(request: dict[str, Any]) -> None:
    """Gives the interpreter its rank's own names."""
    if hasattr(sys, "orig_argv"):  # since Python 3.10
        sys.orig_argv = list(request["argv"])
    executable = os.path.abspath(request["executable"])
    if getattr(sys, "_base_executable", "") == sys.executable:
        sys._base_executable = executable  # type: ignore[attr-defined]
    sys.executable = executable
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # it is still the zygote's
    _set_comm("rank-" + os.environ.get("RANK", "?"))


def _settle_libraries() -> None:
    """Generators and thread pools as fresh ones."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    pools = sys.modules.get("convoy_workloads.launcher.pools")
    if pools is not None:
        pools.resize(os.environ)
    if torch is not None:
        _count_steps()


def _set_comm(name: str) -> None:
    """Sets the name that `ps` and `top` show; without it all ranks look like the zygote."""
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write(name)
    except OSError:
        pass


def _count_steps() -> None:
    """Telemetry for programs that know nothing of Convoy; it must not end one."""
    try:
        from convoy_workloads.runtime import hooks, rank_context  # noqa: PLC0415

        hook = hooks.install(rank_context.from_environment(os.environ))
        atexit.register(hook.close)
    except Exception as error:
        print(f"convoy: steps are not counted: {error}", file=sys.stderr)


def _execute(request: dict[str, Any]) -> NoReturn:
    """Replaces this process by a fresh interpreter."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # an interpreter ignores them, which exec would keep
        signal.signal(number, signal.SIG_DFL)
    os.execve(request["executable"], request["argv"], request["environment"])  # noqa: S606
