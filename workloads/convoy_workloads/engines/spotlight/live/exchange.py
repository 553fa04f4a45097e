"""The mailbox as an actor of Ray on the driver's node, and a worker's connection to it.

The actor runs in one event loop. A call that waits for the driver occupies no thread, so however many wait,
the driver can still collect and answer them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

from convoy_workloads.engines.spotlight.live.mailbox import MAX_CALLS, Call
from convoy_workloads.engines.spotlight.live.messages import Message, NoAnswer
from convoy_workloads.ray_cluster.outcomes import Value, outcome

CONCURRENCY = MAX_CALLS + 64
"""Calls of the actor at a time. There is room for the driver's own while MAX_CALLS workers wait."""


class Exchange:
    """Calls of workers and the driver's answers."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._calls: dict[int, Call] = {}
        """Calls that the driver has not collected."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._arrival: asyncio.Future[None] | None = None
        """Set as soon as a call arrives, while the driver waits for one."""

    async def call(self, worker: str, message: Message, seconds: float) -> tuple[Any, ...]:
        """Return the driver's answer in a tuple; an empty tuple if there is none within `seconds`, or if too
        many calls wait.
        """
        if len(self._answers) >= MAX_CALLS:
            return ()
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._calls[number], self._answers[number] = Call(number, worker, message), answer
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        try:
            return (await asyncio.wait_for(answer, seconds),)
        except TimeoutError:
            return ()
        finally:
            del self._answers[number]
            self._calls.pop(number, None)

    async def collect(self, seconds: float) -> list[Call]:
        """Return the calls that have not been collected, as soon as there is one; none after `seconds`."""
        if not self._calls:
            self._arrival = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrival, seconds)
        found = list(self._calls.values())
        self._calls.clear()
        return found

    async def reply(self, answers: Mapping[int, Any]) -> None:
        """Answer calls by their numbers. An answer that nobody waits for any more is dropped."""
        for number, one in answers.items():
            waiting = self._answers.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(one)


class RayClient:
    """A worker's connection to the driver."""

    def __init__(self, exchange: Any, name: str) -> None:
        self._exchange = exchange
        self._name = name

    def call(self, message: Message, seconds: float) -> Any:
        """Return the driver's answer. Raises NoAnswer if there is none within `seconds`."""
        found = outcome(self._exchange.call.remote(self._name, message, seconds), seconds + 1)
        if not isinstance(found, Value) or not found.value:
            raise NoAnswer
        return found.value[0]
