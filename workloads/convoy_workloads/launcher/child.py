"""The first moments of a forked rank: from the zygote's likeness to what a fresh `python FILE` would be."""
# ruff: noqa: PTH109, PTH112, PTH120, PTH123 - as few imports as a fresh interpreter

from __future__ import annotations

import atexit
import faulthandler
import os
import random
import runpy
import signal
import sys
import threading
import traceback
import types
from typing import Any, NoReturn

FRESH_TORCH_SEED = 67280421310721
"""Seed of torch's default generator in a fresh process."""


def run(request: dict[str, Any]) -> NoReturn:
    """Becomes the program of the request and ends with its exit code."""
    code = 1
    try:
        _settle(request)
        code = _run_program(request)
    finally:
        _end(code)


def _settle(request: dict[str, Any]) -> None:
    """Signals, environment, folder, generators and threads as a fresh process has them."""
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    _take_name("rank-" + os.environ.get("RANK", "?"))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable()
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(FRESH_TORCH_SEED)
        threads = os.environ.get("OMP_NUM_THREADS", "1").split(",")[0]
        torch.set_num_threads(int(threads) if threads.isdigit() and int(threads) else 1)
        _count_steps()


def _take_name(name: str) -> None:
    """What `ps` and `top` show for this process; without it all ranks look like the zygote."""
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write(name)
    except OSError:
        pass


def _count_steps() -> None:
    """Telemetry for programs that know nothing of Convoy; it must not end one."""
    try:
        from convoy_workloads.runtime import hooks, place  # noqa: PLC0415

        hook = hooks.install(place.from_environment(os.environ))
        atexit.register(hook.close)
    except Exception as error:
        print(f"convoy: steps are not counted: {error}", file=sys.stderr)


def _finish_steps() -> None:
    hooks = sys.modules.get("convoy_workloads.runtime.hooks")
    if hooks is not None:
        hooks.finish()


def _run_program(request: dict[str, Any]) -> int:
    """Runs the program as `__main__`; its exit code."""
    target, arguments = request["target"], request["arguments"]
    try:
        if request["kind"] == "module":
            sys.path.insert(0, os.getcwd())
            sys.argv = [target, *arguments]
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            _run_file(target, arguments)
    except BaseException as error:
        return _report(error)
    finally:
        _finish_steps()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the program's threads, as the interpreter does
    return 0


def _run_file(path: str, arguments: list[str]) -> None:
    """As `python path` does: the script is the real `__main__`; pickles and spawned workers find it."""
    sys.argv = [path, *arguments]
    if os.path.isdir(path) or path.endswith((".pyc", ".zip", ".pyz")):
        runpy.run_path(path, run_name="__main__")
        return
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"python: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - this is the interpreter


def _report(error: BaseException) -> int:
    """Prints what the interpreter would; the exit code that tells the operator what it means."""
    from convoy_workloads.runtime.errors import exit_code_of  # noqa: PLC0415

    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    else:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
    return exit_code_of(error)


def _end(code: int) -> NoReturn:
    """Runs the program's exit handlers and goes.

    Not through the interpreter's own end: it joins the threads of a process group whose peers may be gone.
    """
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
