"""Processes that send a load together. Each sends every n-th request of the same schedule."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from convoy.load.client import Load, Target
from convoy.load.outcome import Kind
from convoy.load.tally import Tally

READY_SECONDS = 60.0
"""Longest time until all workers have started."""
LEAD_SECONDS = 0.2
"""Time between the start of the schedule and the moment at which the workers learn of it."""
END_SECONDS = 0.2
"""Seconds for a worker to end after its result."""
REPORT_SECONDS = 1.0
"""Time between two progress reports."""
_INTERRUPT = {signal.SIGINT}


class WorkerLost(Exception):
    """Raised if a worker has ended without its result."""


@dataclass(frozen=True)
class Plan:
    """The load of all workers."""

    target: Target
    schedule: Callable[[], Iterable[float]]
    """Function that returns the times of all requests. It must be picklable."""
    seed: int
    max_in_flight: int
    """Maximum number of requests in flight of all workers together."""


@dataclass(frozen=True)
class Progress:
    """The state of a load that runs."""

    seconds: float
    """Seconds since the start of the load."""
    scheduled: int
    ok: int
    in_flight: int
    p95_ms: float | None
    """95th percentile of the latency so far; None without a complete response."""


@dataclass(frozen=True)
class Result:
    """The result of a load."""

    tally: Tally
    seconds: float
    started: float
    """Unix time in seconds from which the scheduled times count."""


def run(plan: Plan, workers: int, on_progress: Callable[[Progress], None]) -> Result:
    """Send a load and wait until all requests have ended. SIGINT stops it early. Raises WorkerLost if a
    worker process ends without its result.
    """
    if workers == 1:
        return asyncio.run(_run_here(plan, on_progress))
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    resource_tracker.ensure_running()  # Its start would unblock SIGINT.
    with contextlib.ExitStack() as stack:
        # The workers inherit the block. They lift it as soon as they can handle the signal.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, plan, number, workers), daemon=True)
            process.start()
            theirs.close()
            stack.callback(_end, process)
            pipes.append(ours)
            processes.append(process)
        previous = signal.signal(signal.SIGINT, lambda *_: _stop(processes))
        stack.callback(signal.signal, signal.SIGINT, previous)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return _lead(pipes, on_progress)


def _stop(processes: Iterable[multiprocessing.process.BaseProcess]) -> None:
    """Let the workers send no further request."""
    for one in processes:
        if one.pid is not None and one.is_alive():
            os.kill(one.pid, signal.SIGINT)


def _lead(pipes: list[Connection], on_progress: Callable[[Progress], None]) -> Result:
    """Start the workers at the same time and merge their results."""
    deadline = time.monotonic() + READY_SECONDS
    for pipe in pipes:
        if not pipe.poll(max(0.0, deadline - time.monotonic())):
            raise WorkerLost(f"a worker has not started within {READY_SECONDS:g} s: use fewer --workers")
        _receive(pipe)
    started = time.time() + LEAD_SECONDS
    for pipe in pipes:
        # If the worker has ended, receiving from it raises the error.
        with contextlib.suppress(OSError):
            pipe.send(started)
    tally, seconds = Tally(), 0.0
    states: dict[Any, Progress] = {}
    left: set[Any] = set(pipes)
    while left:
        for ready in wait(left):
            message = _receive(ready)
            if isinstance(message, Progress):
                states[ready] = message
                on_progress(_sum(states.values()))
            else:
                tally.merge(message[0])
                seconds = max(seconds, message[1])
                left.discard(ready)
    return Result(tally, seconds, started)


def _receive(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except (EOFError, OSError) as error:
        raise WorkerLost("a worker has ended without its result; its error is above") from error


def _sum(states: Iterable[Progress]) -> Progress:
    every = list(states)
    slowest = [one.p95_ms for one in every if one.p95_ms is not None]
    return Progress(
        max(one.seconds for one in every),
        sum(one.scheduled for one in every),
        sum(one.ok for one in every),
        sum(one.in_flight for one in every),
        max(slowest, default=None),
    )


def _end(process: multiprocessing.process.BaseProcess) -> None:
    process.join(END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def _work(pipe: Connection, plan: Plan, number: int, workers: int) -> None:
    """Run a worker."""
    pipe.send("ready")
    try:
        started = pipe.recv()
    except EOFError:
        return
    share = Plan(plan.target, plan.schedule, plan.seed, max(1, plan.max_in_flight // workers))
    result = asyncio.run(_run_here(share, pipe.send, (number, workers), started))
    pipe.send((result.tally, result.seconds))


async def _run_here(
    plan: Plan,
    on_progress: Callable[[Progress], None],
    part: tuple[int, int] = (0, 1),
    started: float | None = None,
) -> Result:
    """Send a part of a load in this process. `part`: number of the worker, and of all workers."""
    tally = Tally()
    made = Load(plan.target, plan.seed, plan.max_in_flight, tally.add)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, made.stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
    number, workers = part
    numbered = itertools.islice(enumerate(plan.schedule()), number, None, workers)
    watching = asyncio.ensure_future(_watch(made, tally, on_progress))
    try:
        seconds = await made.run(numbered, started)
    finally:
        watching.cancel()
        if workers > 1:  # The worker must still send its result.
            signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
    return Result(tally, seconds, made.started)


async def _watch(made: Load, tally: Tally, on_progress: Callable[[Progress], None]) -> None:
    """Report the progress of a load."""
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        seconds = time.time() - made.started
        sent = tally.scheduled + made.in_flight
        ok, p95 = tally.counts[Kind.OK], tally.total.milliseconds(95)
        try:
            on_progress(Progress(seconds, sent, ok, made.in_flight, p95))
        except OSError:  # The process that leads the workers has ended.
            made.stop()
            return
