"""The zygote: a process that has already made the slow start of a Python rank. Ranks are forked from it
instead of being started from scratch.

The zygote has only one thread. A fork contains only the thread that called fork. If other threads existed,
a lock or pool of theirs would make the fork hang. The zygote runs under the user's interpreter with the
user's packages, and has no information about jobs.

The zygote communicates with the launcher over one socket. A fork request is one byte with three
descriptors: the request as JSON, stdout, stderr. The zygote sends events as JSON datagrams. It refuses a
rank if the fork would differ from a fresh interpreter.
"""
# ruff: noqa: PTH123, PTH208 - as few imports as a fresh interpreter

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from convoy_workloads.launcher import fork_check, fork_exit

if TYPE_CHECKING:
    from convoy_workloads.launcher.program import Program

ZYGOTE_FD = "CONVOY_ZYGOTE_FD"
"""Variable with the file descriptor of the zygote's end of the socket."""


def main() -> int | Program:
    """Serve fork requests until the launcher closes its end of the socket, then return 0. In a fork, return
    the program of the rank.
    """
    server = socket.socket(fileno=int(os.environ.pop(ZYGOTE_FD)))
    os.set_inheritable(server.fileno(), False)
    given = _given_environment()
    own = {name: value for name, value in os.environ.items() if name not in given}
    # Ignore SIGINT and SIGTERM. Only the launcher ends the zygote, not Ctrl-C in a terminal or a stray
    # SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Block SIGTERM. A fork unblocks it when it has become a rank, so a SIGTERM that arrives before is not
    # lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    started_at = time.monotonic()
    atexit.register(fork_exit.keep_modules)  # Exit handlers run in reverse order, so this one runs last.
    from convoy_workloads.launcher import warmup  # noqa: PLC0415

    torch, unfit = warmup.warm_up()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1 and not unfit:
        unfit = f"the modules imported by the zygote run {threads} threads, which a fork would lose"
    fork_exit.record_zygote_modules()
    gc.collect()
    # After gc.freeze() the garbage collector never writes to the pages that forks share, so the kernel never
    # has to copy them.
    gc.freeze()
    _send(server, {"event": "ready", "torch": torch, "seconds": round(time.monotonic() - started_at, 3)})
    state = fork_check.ZygoteState(given, fork_check.module_folders(sys.modules.items()), unfit)
    request = ZygoteServer(server, state).serve()
    if request is None:
        return 0
    server.close()
    from convoy_workloads.launcher import child  # noqa: PLC0415

    # Add the variables that the interpreter itself has set in this process. For example, it sets LC_CTYPE if
    # the locale is C, and would also do so for a fresh rank.
    return child.prepare({**request, "environment": {**request["environment"], **own}})


def _given_environment() -> dict[str, str]:
    """Return the environment with which this process was executed."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if entry]
    except OSError:  # /proc denies access if the interpreter has capabilities.
        return dict(os.environ)
    return {name: value for name, _, value in entries if name != ZYGOTE_FD}


def _decode_for_locale(value: Any) -> Any:
    """Return the texts of a request decoded as this interpreter decodes its environment and arguments.

    The launcher always decodes bytes as UTF-8. The ranks must use the encoding of the user's locale and
    options instead.
    """
    if isinstance(value, str):
        return os.fsdecode(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, list):
        return [_decode_for_locale(one) for one in value]
    if isinstance(value, dict):
        return {_decode_for_locale(key): _decode_for_locale(one) for key, one in value.items()}
    return value


def _send(server: socket.socket, event: dict[str, Any]) -> None:
    server.send(json.dumps(event).encode())


class ZygoteServer:
    """Forks ranks on request and reports their exits to the launcher."""

    def __init__(self, server: socket.socket, state: fork_check.ZygoteState) -> None:
        self._server = server
        self._state = state
        self._children: dict[int, int] = {}
        """For each fork, by process id: the token of the launcher's request for the fork."""

    def serve(self) -> dict[str, Any] | None:
        """Serve requests until the launcher closes the socket, then return None. In a fork, return the
        request of its rank.
        """
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        previous = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        watched: list[Any] = [self._server, wake_read]
        while True:
            readable, _, _ = select.select(watched, [], [])
            if wake_read in readable:
                os.read(wake_read, 4096)
                self._reap()
            if self._server not in readable:
                continue
            data, descriptors, _, _ = socket.recv_fds(self._server, 16, 3)
            if not data:
                self._kill_children()
                return None
            request = self._fork(descriptors)
            if request is not None:
                signal.set_wakeup_fd(previous)
                os.close(wake_read)
                os.close(wake_write)
                return request

    def _fork(self, descriptors: list[int]) -> dict[str, Any] | None:
        """Fork a process. In the fork, connect its output and return the request. In the zygote, return
        None.
        """
        payload, stdout, stderr = descriptors
        with os.fdopen(payload, "rb") as file:
            file.seek(0)
            request: dict[str, Any] = _decode_for_locale(json.load(file))
        if why := self._cold_start_reason(request):
            os.close(stdout)
            os.close(stderr)
            _send(self._server, {"event": "refused", "token": request["token"], "why": why})
            return None
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            os.close(stdout)
            os.close(stderr)
            self._children[pid] = request["token"]
            _send(self._server, {"event": "started", "token": request["token"], "pid": pid})
            return None
        os.setsid()
        # Use /dev/null as standard input, as subprocess.DEVNULL does for a cold rank.
        nothing = os.open(os.devnull, os.O_RDWR)
        for source, target in ((nothing, 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target)
            os.close(source)
        return request

    def _cold_start_reason(self, request: dict[str, Any]) -> str:
        folder = fork_check.first_path_folder(request["kind"], request["target"])
        shadowed = fork_check.shadowed_modules(folder, self._state) if folder else ()
        return fork_check.cold_start_reason(request["environment"], shadowed, self._state)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            token = self._children.pop(pid, None)
            if token is not None:
                _send(self._server, {"event": "exited", "token": token, "pid": pid, "status": status})

    def _kill_children(self) -> None:
        """Kill all forks. This is done when the launcher has ended, because then no process watches the
        forks.
        """
        for pid in self._children:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
