"""Plays the cases that plans ask for, in a child process, and remembers the results.

Cases are simulated outside of reconciles, so no reconcile waits. There is one child process at a time, with
low priority and a deadline. Equal cases of all jobs share a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence

import structlog

from convoy_controllers.keys import Key
from convoy_controllers.placement.forecast.case import Case
from convoy_controllers.placement.forecast.ranking import Forecast, Forecasts

log = structlog.get_logger(__name__)

CHILD = (sys.executable, "-m", "convoy_operator.forecasts.child")
SECONDS = 10.0
"""Seconds after which the child process is killed. Cases without a result then count as failed."""
REMEMBERED = 4096
"""Maximum number of results."""
QUEUED = 64
"""Maximum number of jobs that wait. A further job asks again at its next plan."""


class Simulator:
    """Queues cases without waiting, and simulates them in the background."""

    def __init__(
        self,
        wake: Callable[[Key], None],
        command: Sequence[str] = CHILD,
        seconds: float = SECONDS,
    ) -> None:
        """`wake` is called with the key of a job whose cases have results."""
        self._wake, self._command, self._seconds = wake, command, seconds
        self._results: OrderedDict[Case, Forecast] = OrderedDict()
        self._waiting: OrderedDict[Key, tuple[Case, ...]] = OrderedDict()
        self._work = asyncio.Event()

    @property
    def results(self) -> Forecasts:
        """The result of each case that has been simulated."""
        return self._results

    def request(self, key: Key, cases: Sequence[Case]) -> None:
        """Queue the cases of a job. They replace those that the job has asked for before."""
        lacking = tuple(case for case in cases if case not in self._results)
        if not lacking:
            self._waiting.pop(key, None)
        elif key in self._waiting or len(self._waiting) < QUEUED:
            self._waiting[key] = lacking
            self._work.set()

    async def run(self) -> None:
        """Simulate the cases of one job after the other, until cancelled."""
        while True:
            await self._work.wait()
            if not self._waiting:
                self._work.clear()
                continue
            key, cases = self._waiting.popitem(last=False)
            lacking = [case for case in cases if case not in self._results]
            found = await self._simulate(lacking) if lacking else []
            for case, forecast in zip(lacking, found, strict=True):
                self._remember(case, forecast)
            self._wake(key)

    def _remember(self, case: Case, forecast: Forecast) -> None:
        self._results[case] = forecast
        while len(self._results) > REMEMBERED:
            self._results.popitem(last=False)

    async def _simulate(self, cases: Sequence[Case]) -> list[Forecast]:
        """Return the result of each case. The child's results until the deadline count."""
        lines: list[str] = []
        failure = f"the simulation has not ended after {self._seconds:g} s"
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            log.warning("the simulation of a step has not started", error=str(error))
            return [Forecast(failure=f"the simulation has not started: {error}")] * len(cases)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await _talk(child, cases, lines)
                    failure = f"the simulation ended with exit status {child.returncode}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        found = [Forecast(**json.loads(line)) for line in lines[: len(cases)]]
        if len(found) < len(cases):
            log.warning("a simulation of a step has no result", reason=failure, cases=len(cases) - len(found))
        return found + [Forecast(failure=failure)] * (len(cases) - len(found))


async def _talk(child: asyncio.subprocess.Process, cases: Sequence[Case], lines: list[str]) -> None:
    """Send the cases, and append each line of the answer to `lines` as it comes, until the child ends."""
    stdin, stdout = child.stdin, child.stdout
    if stdin is None or stdout is None:
        return
    stdin.write("".join(f"{case.dump()}\n" for case in cases).encode())
    stdin.close()
    while line := await stdout.readline():
        if line.endswith(b"\n"):
            lines.append(line.decode())
    await child.wait()
