"""Manages the launcher's zygote. There is at most one zygote at a time, and it runs the interpreter that
the ranks use.
"""
# ruff: noqa: PTH100, PTH120 - links stay unresolved: a venv's interpreter is one

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from convoy_workloads.launcher import command, system
from convoy_workloads.launcher.fork_check import SINGLE_THREADED
from convoy_workloads.launcher.output import log
from convoy_workloads.launcher.rank_env import common_environment
from convoy_workloads.launcher.zygote_client import ZygoteClient, ZygoteError

MAX_STARTS = 4
"""Maximum number of zygotes that are started in the life of a container. After that, ranks start cold."""
WARM_VARIABLE = "CONVOY_WARM"
"""Variable that makes all ranks start cold if its value is `false` (`convoy_crds.terms.ENV_WARM`)."""


class ZygoteManager:
    """Starts and replaces the zygote. It is replaced if it has ended or if ranks need another interpreter."""

    def __init__(self, environment: Mapping[str, str], on_exit: Callable[[int, int], None]) -> None:
        """Create the manager without starting a zygote. `environment` is the container's environment.
        `on_exit` is called with the process id and wait status of each forked rank that exits.
        """
        self._environment = environment
        self._enabled = environment.get(WARM_VARIABLE) != "false"
        self._on_exit = on_exit
        self._client: ZygoteClient | None = None
        self._started = 0

    @property
    def alive(self) -> bool:
        """Return True if the zygote runs. Only a running zygote can report the exits of the ranks that it
        has forked.
        """
        return self._client is not None and self._client.alive

    def prewarm(self, *names: str) -> None:
        """Start a zygote before the first assignment arrives, with the first interpreter of `names` that is
        on PATH.

        Importing torch takes longer than forming the incarnation, so the zygote must start early.
        """
        for name in names:
            with contextlib.suppress(command.CommandError):
                self._start(command.resolve(name, self._environment.get("PATH", os.defpath)))
                return

    def for_interpreter(self, executable: str) -> ZygoteClient | None:
        """Return a zygote that runs the interpreter `executable`; start one if necessary. The zygote may
        still be in its warm-up. Return None if no zygote can be started.
        """
        client = self._client
        if client is not None and client.alive and same_interpreter(client.python, executable):
            return client
        return self._start(executable)

    def handle_exit(self, pid: int, status: int) -> bool:
        """Record the exit of the child process `pid` if it is the zygote. Return True if it is the zygote."""
        if self._client is None or pid != self._client.pid:
            return False
        self._client.record_exit(status)
        return True

    def stop(self) -> None:
        """Stop the zygote."""
        if self._client is not None:
            self._client.stop()

    def _start(self, executable: str) -> ZygoteClient | None:
        if self._started >= MAX_STARTS or not self._enabled or not system.can_fork_warm():
            return None
        self.stop()
        self._started += 1
        client = ZygoteClient(executable, system.entry(), self._on_exit)
        try:
            client.start(self._zygote_environment())
        except ZygoteError as error:
            log(str(error))
            return None
        self._client = client
        return client

    def _zygote_environment(self) -> dict[str, str]:
        environment = common_environment(self._environment, system.library())
        for name in SINGLE_THREADED:
            if name == "OMP_NUM_THREADS" or name in environment:
                environment[name] = "1"
        return environment


def same_interpreter(one: str, other: str) -> bool:
    """Return True if two paths run the same interpreter with the same packages.

    That is True for `python` and `python3` of one folder. It is False for a virtual environment's link to
    the system's interpreter, because the virtual environment has its own packages.
    """
    one, other = os.path.abspath(one), os.path.abspath(other)
    beside = os.path.dirname(one) == os.path.dirname(other)
    return one == other or (beside and os.path.realpath(one) == os.path.realpath(other))
