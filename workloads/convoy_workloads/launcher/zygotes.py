"""The zygote that the launcher keeps: one at a time, of the interpreter that the ranks run under."""
# ruff: noqa: PTH100, PTH120 - links stay unresolved: a venv's interpreter is one

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from convoy_workloads.launcher import command, system
from convoy_workloads.launcher.likeness import SINGLE_THREADED
from convoy_workloads.launcher.nursery import Nursery, NurseryError
from convoy_workloads.launcher.output import say
from convoy_workloads.launcher.rank_env import common_environment

MOST = 4
"""Zygotes started in this container's life; then ranks start cold."""
WARM = "CONVOY_WARM"
"""`false` starts all ranks cold: `convoy_crds.terms.ENV_WARM`."""


class Zygotes:
    """At most one zygote, replaced when it died or another interpreter is asked for."""

    def __init__(self, environment: Mapping[str, str], on_exit: Callable[[int, int], None]) -> None:
        """`environment`: the container's; `on_exit` gets process id and wait status of a forked rank."""
        self._environment = environment
        self._wanted = environment.get(WARM) != "false"
        self._on_exit = on_exit
        self._nursery: Nursery | None = None
        self._started = 0

    @property
    def alive(self) -> bool:
        """Whether there is one, which then tells how its ranks end."""
        return self._nursery is not None and self._nursery.alive

    def prewarm(self, *names: str) -> None:
        """Starts one before the first assignment, of the first of `names` that is on PATH.

        Importing torch takes longer than forming the job.
        """
        for name in names:
            with contextlib.suppress(command.CommandError):
                self._start(command.resolve(name, self._environment.get("PATH", os.defpath)))
                return

    def for_interpreter(self, executable: str) -> Nursery | None:
        """A zygote of this interpreter, perhaps still getting warm; None when there can be none."""
        nursery = self._nursery
        if nursery is not None and nursery.alive and same_interpreter(nursery.python, executable):
            return nursery
        return self._start(executable)

    def reaped(self, pid: int, status: int) -> bool:
        """Takes in the end of a child, if it was the zygote. Whether it was."""
        if self._nursery is None or pid != self._nursery.pid:
            return False
        self._nursery.reaped(status)
        return True

    def stop(self) -> None:
        """Lets the zygote go."""
        if self._nursery is not None:
            self._nursery.stop()

    def _start(self, executable: str) -> Nursery | None:
        if self._started >= MOST or not self._wanted or not system.can_fork_warm():
            return None
        self.stop()
        self._started += 1
        nursery = Nursery(executable, system.entry(), self._on_exit)
        try:
            nursery.start(self._zygote_environment())
        except NurseryError as error:
            say(str(error))
            return None
        self._nursery = nursery
        return nursery

    def _zygote_environment(self) -> dict[str, str]:
        environment = common_environment(self._environment, system.library())
        for name in SINGLE_THREADED:
            if name == "OMP_NUM_THREADS" or name in environment:
                environment[name] = "1"
        return environment


def same_interpreter(one: str, other: str) -> bool:
    """Whether two paths run the same interpreter with the same packages.

    `python` and `python3` of one folder do. A venv's link to the system's interpreter has its own packages.
    """
    one, other = os.path.abspath(one), os.path.abspath(other)
    beside = os.path.dirname(one) == os.path.dirname(other)
    return one == other or (beside and os.path.realpath(one) == os.path.realpath(other))
