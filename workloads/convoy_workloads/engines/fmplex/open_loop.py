"""Requests of a bench: they arrive at times that do not depend on the results, at one engine or at one engine
for each task. Latencies count from the scheduled arrival.

The clock is the processor time of the only thread, plus the pauses without a request, which are skipped. On a
core of its own, this is the wall time. On a busy machine, other programs disturb it less than the wall time.
With a GPU, the clock is the wall time, because the thread need not use its processor while the GPU computes.
The choice between engines does not count, because instances of their own would not need it.
"""

from __future__ import annotations

import contextlib
import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from convoy_workloads.engines.fmplex.engine import Multiplexer
from convoy_workloads.engines.fmplex.params import Params
from convoy_workloads.serving.protocol import Inference

WORDS = ("refund", "invoice", "late", "parcel", "password", "thanks", "broken", "cancel", "order", "hello")
LETTERS = 8
"""Maximum number of bytes of a text."""
CAPACITY_BATCHES = 12
"""Number of batches to measure the capacity."""


@dataclass(frozen=True)
class Arrival:
    """A request and its scheduled time in seconds."""

    at: float
    inference: Inference


@dataclass
class Run:
    """The result of a run. Times are in seconds of the clock of the run."""

    seconds: float = 0.0
    """Time from the start to the last result."""
    latencies: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from the arrival of each request to its result, by task."""
    digest: str = ""
    """Digest of all results in the order of the requests."""


class Clock:
    """The processor time of this thread, or the wall time, plus the skipped pauses."""

    def __init__(self, timer: Callable[[], float] = time.thread_time) -> None:
        self._timer = timer
        self._start = timer()
        self._skipped = 0.0

    def now(self) -> float:
        """Return the seconds since the start."""
        return self._timer() - self._start + self._skipped

    def skip_to(self, at: float) -> None:
        """Skip the pause until a later time."""
        self._skipped += max(0.0, at - self.now())

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock until the end of the context."""
        before = self._timer()
        yield
        self._skipped -= self._timer() - before


def arrivals(rates: dict[str, float], seconds: float, seed: int, letters: int = LETTERS) -> list[Arrival]:
    """Return Poisson arrivals. `rates`: requests per second by task. `letters`: maximum length of a text. The
    order of the tasks and the texts depend on the proportions of the rates, the number of requests and the
    seed only.
    """
    random = np.random.default_rng(seed)
    total = sum(rates.values())
    count = round(total * seconds)
    gaps = random.exponential(1.0, count).cumsum() / total
    names = random.choice(list(rates), count, p=[rate / total for rate in rates.values()])
    words = random.choice(WORDS, (count, 2))
    return [
        Arrival(float(at), _inference(number, str(name), _text(one, other, letters)))
        for number, (at, name, (one, other)) in enumerate(zip(gaps, names, words, strict=True))
    ]


def _text(one: str, other: str, letters: int) -> str:
    whole = f"{one}{other}"
    return (whole * (letters // len(whole) + 1))[-letters:] if letters > LETTERS else whole[-letters:]


def serve(
    engines: Sequence[Multiplexer],
    home: dict[str, int],
    due: Sequence[Arrival],
    turns: bool,
    timer: Callable[[], float] = time.thread_time,
) -> Run:
    """Serve the arrivals on one thread. `home`: number of the engine of each task. `turns`: True to let the
    engines with waiting requests compute in turn, False to choose the one with the oldest request. `timer`:
    source of the clock.
    """
    found = Run(latencies={name: [] for name in home})
    results: dict[int, bytes] = {}
    number, last, clock = 0, -1, Clock(timer)
    while len(results) < len(due):
        now = clock.now()
        while number < len(due) and due[number].at <= now:
            engines[home[due[number].inference.model]].admit(due[number].inference)
            number += 1
        with clock.stopped():
            last = _choose(engines, last, turns)
        if last < 0:
            clock.skip_to(due[number].at)
            continue
        for one in engines[last].step():
            if one.error is not None:
                raise one.error
            results[one.sequence] = b"".join(table.tobytes() for table in one.outputs.values())
            arrival = due[one.sequence]
            found.latencies[arrival.inference.model].append(clock.now() - arrival.at)
    found.seconds = clock.now()
    found.digest = hashlib.sha256(b"".join(results[one] for one in range(len(due)))).hexdigest()
    return found


def _choose(engines: Sequence[Multiplexer], last: int, turns: bool) -> int:
    """Return the number of the engine that computes next; -1 if no request waits."""
    waiting = [number for number, engine in enumerate(engines) if engine.usage().preempted]
    if not waiting:
        return -1
    if turns:
        return min(waiting, key=lambda number: (number <= last, number))
    return min(waiting, key=lambda number: _oldest(engines[number]))


def _oldest(engine: Multiplexer) -> float:
    item = engine.deployment.pods[0].queue.oldest()
    return item.at if item is not None else float("inf")


def loaded(params: Params, device: str = "cpu") -> Multiplexer:
    """Return an engine that has loaded its tasks and has passed its self-test."""
    torch.set_num_threads(1)
    made = Multiplexer(params, None, torch.device(device))
    made.load(lambda: None)
    made.self_test()
    return made


def capacity(
    engine: Multiplexer,
    task: str,
    batch_max: int,
    letters: int = LETTERS,
    timer: Callable[[], float] = time.thread_time,
) -> float:
    """Return the requests per second of full batches."""
    times = []
    for _ in range(CAPACITY_BATCHES):
        for number in range(batch_max):
            engine.admit(_inference(number, task, _text("an order", "", letters)))
        clock = Clock(timer)
        while engine.usage().preempted:
            engine.step()
        times.append(clock.now())
    return batch_max / statistics.median(times)


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile of the values."""
    return float(np.quantile(values, share))


def _inference(number: int, task: str, text: str) -> Inference:
    return Inference(number, task, {"text": np.array([text], dtype=object)}, (), 1)
