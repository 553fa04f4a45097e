"""The zygote: a process that has done a rank's slow start once, so that ranks are forked instead of started.

Single-threaded: after a fork only the forking thread exists, and a lock or a thread pool of another would
hang the child. It runs under the user's interpreter with the user's packages, knows nothing of jobs, and
speaks to the launcher over one socket: a fork request is one byte with three descriptors (request as JSON,
stdout, stderr); what happened comes back as JSON datagrams. It refuses ranks whose fork would differ from a
fresh interpreter.
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

from convoy_workloads.launcher import ending, likeness

if TYPE_CHECKING:
    from convoy_workloads.launcher.program import Program

ZYGOTE_FD = "CONVOY_ZYGOTE_FD"
"""Variable that names the zygote's end of the socket."""


def main() -> int | Program:
    """Serves fork requests until the launcher's end closes. In a forked child: its rank's program."""
    server = socket.socket(fileno=int(os.environ.pop(ZYGOTE_FD)))
    os.set_inheritable(server.fileno(), False)
    given = _given_environment()
    own = {name: value for name, value in os.environ.items() if name not in given}
    # The terminal's Ctrl-C and a stray SIGTERM are the launcher's to judge.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A child has it blocked until it is a rank: what it is told before then is kept for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    began = time.monotonic()
    atexit.register(ending.spare_modules)  # the first to register is the last to run
    from convoy_workloads.launcher import warmth  # noqa: PLC0415

    torch, unfit = warmth.warm_up()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1 and not unfit:
        unfit = f"what the zygote has imported runs {threads} threads, which a fork would lose"
    ending.note_warm()
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the pages that children share
    _tell(server, {"event": "ready", "torch": torch, "seconds": round(time.monotonic() - began, 3)})
    facts = likeness.Zygote(given, likeness.imported(sys.modules.items()), unfit)
    request = Zygote(server, facts).serve()
    if request is None:
        return 0
    server.close()
    from convoy_workloads.launcher import child  # noqa: PLC0415

    # The interpreter adds LC_CTYPE where the locale is C.
    return child.prepare({**request, "environment": {**request["environment"], **own}})


def _given_environment() -> dict[str, str]:
    """The variables that this process was executed with."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if entry]
    except OSError:  # an interpreter with capabilities of its own
        return dict(os.environ)
    return {name: value for name, _, value in entries if name != ZYGOTE_FD}


def _localized(value: Any) -> Any:
    """The text of a request as this interpreter reads such bytes from its environment and arguments.

    The launcher reads bytes as UTF-8 whatever the locale is; here the user's locale and options count.
    """
    if isinstance(value, str):
        return os.fsdecode(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, list):
        return [_localized(one) for one in value]
    if isinstance(value, dict):
        return {_localized(key): _localized(one) for key, one in value.items()}
    return value


def _tell(server: socket.socket, event: dict[str, Any]) -> None:
    server.send(json.dumps(event).encode())


class Zygote:
    """The loop: fork on request, report exits."""

    def __init__(self, server: socket.socket, facts: likeness.Zygote) -> None:
        self._server = server
        self._facts = facts
        self._children: dict[int, int] = {}
        """Process id to the launcher's token."""

    def serve(self) -> dict[str, Any] | None:
        """Returns None when the launcher is gone; in a child, the request that it was forked for."""
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
                self._end()
                return None
            request = self._fork(descriptors)
            if request is not None:
                signal.set_wakeup_fd(previous)
                os.close(wake_read)
                os.close(wake_write)
                return request

    def _fork(self, descriptors: list[int]) -> dict[str, Any] | None:
        """Forks. In the child: the request, with its output connected. In the zygote: None."""
        payload, stdout, stderr = descriptors
        with os.fdopen(payload, "rb") as file:
            file.seek(0)
            request: dict[str, Any] = _localized(json.load(file))
        if why := self._why_cold(request):
            os.close(stdout)
            os.close(stderr)
            _tell(self._server, {"event": "refused", "token": request["token"], "why": why})
            return None
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            os.close(stdout)
            os.close(stderr)
            self._children[pid] = request["token"]
            _tell(self._server, {"event": "started", "token": request["token"], "pid": pid})
            return None
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)  # as subprocess.DEVNULL is
        for source, target in ((nothing, 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target)
            os.close(source)
        return request

    def _why_cold(self, request: dict[str, Any]) -> str:
        folder = likeness.first_folder(request["kind"], request["target"])
        beside = likeness.hidden_by(folder, self._facts) if folder else ()
        return likeness.why_cold(request["environment"], beside, self._facts)

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
                _tell(self._server, {"event": "exited", "token": token, "pid": pid, "status": status})

    def _end(self) -> None:
        """Without a launcher nobody watches the ranks: they go too."""
        for pid in self._children:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
