"""A program that prints, as JSON, everything that it can observe of its process and interpreter at its
start.

With the argument `torch` it also imports torch and adds torch's settings.
"""
# ruff: noqa: E402, E501, PTH109, PTH115, PTH123, PTH208, SIM115 - keys are recorded before any import

import __main__

KEYS = list(vars())  # The names are recorded before this program imports anything.

import asyncio
import atexit
import builtins
import decimal
import faulthandler
import fcntl
import gc
import inspect
import json
import linecache
import locale
import logging
import multiprocessing.spawn
import os
import pickle
import resource
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path

WITH_TORCH = sys.argv[1:] == ["torch"]


class Example:
    """An object that is pickled."""


def stream(one):
    return [
        type(one).__name__, one.name, one.mode, one.encoding, one.errors, one.newlines, one.line_buffering,
        one.write_through, one.fileno(), one.isatty(), one.closed, type(one.buffer).__name__,
        repr(getattr(one.buffer, "raw", None)),
    ]  # fmt: skip


def descriptors():
    found = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            mode = stat.S_IFMT(os.fstat(number).st_mode)
        except OSError:  # The file descriptor of the listing itself is closed already.
            continue
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        found[number] = [mode, flags, os.get_inheritable(number), os.get_blocking(number)]
    return found


def status_line(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split(":", 1)[1].strip()
    return None


def interpreter():
    return {
        "argv": sys.argv,
        "orig_argv": getattr(sys, "orig_argv", None),
        "flags": repr(sys.flags),
        "path": sys.path,
        "meta_path": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "path_hooks": [getattr(hook, "__name__", "") for hook in sys.path_hooks],
        "executable": sys.executable,
        "base executable": getattr(sys, "_base_executable", None),
        "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix],
        "warnoptions": sys.warnoptions,
        "xoptions": getattr(sys, "_xoptions", None),
        "dont_write_bytecode": sys.dont_write_bytecode,
        "pycache_prefix": sys.pycache_prefix,
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "digits": getattr(sys, "get_int_max_str_digits", int)(),
        "encodings": [sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()],
        "hooks": [repr(getattr(sys, name) is getattr(sys, f"__{name}__"))
                  for name in ("excepthook", "displayhook", "unraisablehook", "breakpointhook")],
        "thread hook": threading.excepthook is getattr(threading, "__excepthook__", threading.excepthook),
        "tracing": [sys.gettrace(), sys.getprofile(), tracemalloc.is_tracing()],
        "faulthandler": faulthandler.is_enabled(),
        "last error": hasattr(sys, "last_value"),
        "stdlib": sys.stdlib_module_names.__class__.__name__ if hasattr(sys, "stdlib_module_names") else "",
        "hash of a string": hash("convoy") if os.environ.get("PYTHONHASHSEED", "random") != "random" else None,
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "builtins": sorted(vars(builtins)),
        "exception": [repr(value) for value in sys.exc_info()],
        "ps1": hasattr(sys, "ps1"),
    }  # fmt: skip


def main_module():
    return {
        "keys": KEYS,
        "file": __main__.__file__,
        "others": [repr(getattr(__main__, name, None)) for name in
                   ("__name__", "__doc__", "__package__", "__spec__", "__cached__", "__annotations__")],
        "loader": type(__main__.__loader__).__name__,
        "loader's path": getattr(__main__.__loader__, "path", None),
        "builtins": __main__.__builtins__ is builtins,
        "is in sys.modules": sys.modules["__main__"].Example is Example,
        "pickle": pickle.dumps(Example()).hex(),
        "source": inspect.getsource(Example),
        "line": linecache.getline(__file__, 1),
        "code": inspect.currentframe().f_code.co_filename,
    }  # fmt: skip


def process():
    here = os.getpid()
    return {
        "folder": os.getcwd(),
        "descriptors": descriptors(),
        "streams": [stream(sys.stdin), stream(sys.stdout), stream(sys.stderr)],
        "originals": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "stdin": sys.stdin.read(),
        "environment": {name: value for name, value in os.environ.items() if name != "OUT"},
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
                   if name.startswith("RLIMIT_")},
        "umask": status_line("Umask"),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "scheduler": os.sched_getscheduler(0),
        "oom": Path("/proc/self/oom_score_adj").read_text(),
        "leads its session": [os.getsid(0) == here, os.getpgrp() == here],
        "signals": {name: status_line(name) for name in ("SigBlk", "SigIgn", "SigPnd", "ShdPnd", "SigCgt")},
        "handlers": {number: repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
        "wakeup": signal.set_wakeup_fd(-1),
        "timers": [signal.getitimer(timer) for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF)],
        "privileges": [status_line(name) for name in ("NoNewPrivs", "Seccomp", "CapEff", "Uid", "Gid")],
        "children": Path(f"/proc/self/task/{here}/children").read_text(),
        "used little time": time.process_time() < 30,
        "root": os.readlink("/proc/self/root"),
        "subreaper": prctl(37),
        "death signal": prctl(2),
        "dumpable": prctl(3),
        "exe": os.path.realpath("/proc/self/exe") == os.path.realpath(sys.executable),
    }  # fmt: skip


def prctl(option):
    try:
        import ctypes
    except ImportError:
        return None
    value = ctypes.c_int(-1)
    return [ctypes.CDLL(None).prctl(option, ctypes.byref(value), 0, 0, 0), value.value]


def threads():
    main = threading.main_thread()
    return {
        "all": [(thread.name, thread.daemon) for thread in threading.enumerate()],
        "main": [main is threading.current_thread(), main.ident == threading.get_ident(), main.is_alive(),
                 main.native_id == os.getpid() == threading.get_native_id()],
        "count": threading.active_count(),
        "of the kernel": len(os.listdir("/proc/self/task")),
        "stack size": threading.stack_size(),
        "next name": threading.Thread(target=print).name,
    }  # fmt: skip


def libraries():
    parent = getattr(multiprocessing, "parent_process", lambda: None)()
    return {
        "locale": [locale.setlocale(category) for category in
                   (locale.LC_CTYPE, locale.LC_COLLATE, locale.LC_TIME, locale.LC_NUMERIC, locale.LC_MESSAGES)],
        "zone": [time.tzname, time.timezone, time.localtime(0).tm_hour],
        "log": [logging.root.level, len(logging.root.handlers), logging.raiseExceptions],
        "processes": [multiprocessing.current_process().name, parent, multiprocessing.Process().name,
                      multiprocessing.get_start_method(allow_none=True), multiprocessing.active_children(),
                      os.fsdecode(multiprocessing.spawn.get_executable())],
        "loops": type(asyncio.get_event_loop_policy()).__name__ if sys.version_info < (3, 14) else "",
        "temporary": tempfile.gettempdir(),
        "decimal": repr(decimal.getcontext()),
        "socket timeout": socket.getdefaulttimeout(),
    }  # fmt: skip


def torch_state():
    import numpy
    import torch

    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "parallel": torch.__config__.parallel_info(),
        "seed is random": torch.initial_seed() != 67280421310721,
        "default": [repr(torch.get_default_dtype()), repr(torch.get_default_device())],
        "grad": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "numpy's seed is its own": numpy.random.get_state()[1].tolist() != [0] * 624,
        "distributed": [torch.distributed.is_available(), torch.distributed.is_initialized(),
                        torch.distributed.is_torchelastic_launched()],
        "of the kernel": len(os.listdir("/proc/self/task")),
        "in a thread": in_thread(torch.get_num_threads),
        "env": os.environ.get("OMP_NUM_THREADS"),
        "blas": blas_threads(),
    }  # fmt: skip


def in_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found


def blas_threads():
    import ctypes

    paths = {line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line}
    return [ctypes.CDLL(path).scipy_openblas_get_num_threads64_() for path in sorted(paths)]


if WITH_TORCH:
    report = {"torch": torch_state(), "descriptors": descriptors(), "streams": stream(sys.stdout)}
else:
    report = {
        "interpreter": interpreter(),
        "main": main_module(),
        "process": process(),
        "threads": threads(),
        "libraries": libraries(),
    }
atexit.register(print, json.dumps(report, default=repr))
