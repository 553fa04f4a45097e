"""Live workers on a virtual clock: the real loop, driver and ledger, and workers that follow a script.

No thread runs and nothing sleeps, so a wait of an hour costs nothing and every run is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from torch import nn

from convoy_workloads.engines.spotlight.iteration import IterationReport, Loop
from convoy_workloads.engines.spotlight.learning.grpo import Scored, UpdateReport
from convoy_workloads.engines.spotlight.live import live_workers
from convoy_workloads.engines.spotlight.live.cluster import Changes
from convoy_workloads.engines.spotlight.live.live_workers import LiveWorkers
from convoy_workloads.engines.spotlight.live.mailbox import Call
from convoy_workloads.engines.spotlight.live.messages import Done, Message, Progress, Pull, Weights
from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.spot.ledger.request import Commit, Lease, RequestKind, Result
from convoy_workloads.spot.ledger.requests import RequestLedger

LEASE, PHASE, TICK, STEP, TRAINING = 20.0, 300.0, 0.25, 1.0, 8.0
PARAMS = Params.model_validate(
    {
        "problem": {"kind": "ring", "prompts": 4, "modes": 4},
        "samplerSteps": 3,
        "promptsPerIteration": 2,
        "groupSize": 3,
        "maxSeeds": 4,
        "canary": {"seeds": 2, "minSpearman": -1},
        "leaseSeconds": LEASE,
        "phaseSeconds": PHASE,
    }
)
STEPS = PARAMS.sampler_steps
PAUSE = 0.5
BATCH = STEPS * STEP + 4 * PAUSE
"""Bound of the seconds in which a worker computes all requests that it holds."""
POLICY: Any = nn.Linear(1, 1)
REPORT = UpdateReport(reward=0.0, loss=0.0, kl=0.0, clipped=0.0, zero_contrast=0.0)
Fate = Literal["silent", "reported", "late", "repeats", "stale", "hoards"]


class Hung(AssertionError):
    """Somebody waits without a deadline."""


class VirtualClock:
    """Time in seconds. It ends the test if it has gone on for much longer than any wait may last."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._limit = self.now + 5 * PHASE

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += max(0.0, seconds)
        if self.now > self._limit:
            raise Hung(f"still waiting at {self.now:g} s")


@dataclass(frozen=True)
class Script:
    """The life of a spot worker.

    It ends after `messages` messages, or `end` seconds after the test's begin. Ray reports the end of a
    `reported` worker, and never that of others. A `late` one only stops for longer than a lease, and goes on.
    Some workers also misbehave: they deliver every result twice, or with older weights than asked for, or
    pull leases and do nothing.
    """

    start: float = 0.0
    messages: int = 10_000
    fate: Fate = "silent"
    end: float = float("inf")


@dataclass
class VirtualWorker:
    """A worker that computes requests in steps of one second, as `worker.Worker` does."""

    name: str
    script: Script
    begin: float
    """Virtual seconds at which the test began."""
    capacity: int = 2
    sent: int = 0
    held: list[tuple[Lease, list[int]]] = field(default_factory=list)
    """Leases with the numbers of their finished steps."""
    message: Message = field(default_factory=lambda: Pull(2))

    def __post_init__(self) -> None:
        self.due = self.begin + self.script.start
        """Time of the next message."""

    def has_ended(self, now: float) -> bool:
        """Return True if the worker has ended."""
        script = self.script
        return now >= self.begin + script.end or (self.sent >= script.messages and script.fate != "late")

    def pop_message(self, now: float) -> Message | None:
        """Return the message that is due; None if there is none."""
        if self.has_ended(now) or now < self.due:
            return None
        self.sent += 1
        if self.sent == self.script.messages + 1 and self.script.fate == "late":
            self.due = now + 2 * LEASE
            return None
        self.due = float("inf")
        return self.message

    def continue_after(self, reply: Any, now: float) -> None:
        """Go on after an answer."""
        self.due = now + PAUSE
        match self.message:
            case Pull() if self.script.fate == "hoards":
                return
            case Pull() if reply:
                self.held = [(lease, _steps(lease)) for lease in reply]
                self.message = Weights(reply[0].request.version)
                return
            case Progress():
                self.held = [one for one in self.held if one[0].number in reply]
            case Done() if self.script.fate == "repeats" and self.sent % 2:
                return
            case Pull() | Done():
                self.held = []
        self._compute(now)

    def _compute(self, now: float) -> None:
        if not self.held:
            self.message = Pull(self.capacity)
            return
        least = min(len(steps) for _, steps in self.held)
        self.held = [
            (lease, [*steps, len(steps)] if len(steps) == least else steps) for lease, steps in self.held
        ]
        self.due = now + STEP
        ended = [one for one in self.held if len(one[1]) > STEPS]
        if len(ended) == len(self.held):
            self.message = Done(tuple((lease, self._result(lease, steps)) for lease, steps in ended))
        else:
            self.message = Progress(
                tuple(
                    (lease, Commit(lease.request.version, len(steps) - 1, {"steps": steps}))
                    for lease, steps in self.held
                )
            )

    def _result(self, lease: Lease, steps: list[int]) -> Result:
        request = lease.request
        version = request.version - (self.script.fate == "stale")
        reward = float(np.random.default_rng((request.seed, request.prompt)).random())
        payload = {
            "path": np.array(steps, np.float32)[:, None],
            "logProbs": np.zeros(STEPS, np.float32),
            "versions": [version] * STEPS,
            "reward": reward,
        }
        return Result(version, payload)


def _steps(lease: Lease) -> list[int]:
    return [lease.request.seed % 1000] if lease.commit is None else [*lease.commit.state["steps"]]


class OwnWorker(VirtualWorker):
    """The worker in the trainer's process. It plays its own mailbox."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__("own", Script(), clock.now)
        self.mailbox = self
        self._clock = clock

    def collect(self, seconds: float) -> list[Call]:
        """Return the message that is due."""
        message = self.pop_message(self._clock.now)
        return [] if message is None else [Call(0, self.name, message)]

    def reply(self, answers: Mapping[int, Any]) -> None:
        """Take the answer."""
        if answers:
            self.continue_after(answers[0], self._clock.now)

    def stop(self) -> None:
        """Never end."""

    def join(self, seconds: float) -> bool:
        """Return False: the worker never ends."""
        return False


class VirtualCluster:
    """Spot workers that follow scripts. `lag`: seconds by which each look into the mailbox is late."""

    def __init__(self, clock: VirtualClock, scripts: Sequence[Script], lag: float = 0.0) -> None:
        self._clock = clock
        self._lag = lag
        begin = clock.now
        self._coming = sorted(
            (VirtualWorker(f"spot-{number}", one, begin) for number, one in enumerate(scripts)),
            key=lambda one: one.due,
        )
        self.running: dict[str, VirtualWorker] = {}
        self.lives: dict[str, tuple[float, float]] = {}
        """Reported start and end of each worker."""
        self._asked: dict[int, VirtualWorker] = {}

    def reconcile(self) -> Changes:
        """Start workers whose time has come, and report the ends that Ray notices."""
        ended = [
            one
            for one in self.running.values()
            if one.script.fate == "reported" and one.has_ended(self._clock.now)
        ]
        for one in ended:
            del self.running[one.name]
            self.lives[one.name] = (self.lives[one.name][0], self._clock.now)
        started = [one for one in self._coming if one.due <= self._clock.now]
        self._coming = self._coming[len(started) :]
        self.running |= {one.name: one for one in started}
        self.lives |= {one.name: (self._clock.now, float("inf")) for one in started}
        slots = {name: self.lives[name][0] for name in self.running}
        return Changes([one.name for one in ended], {one.name: one.name for one in started}, slots)

    def groups(self) -> int:
        """Return the number of workers that seem to live."""
        return len(self.running)

    def fit(self, requests: int) -> None:
        """Virtual workers form no groups."""

    def draining(self) -> frozenset[str]:
        """Return no worker."""
        return frozenset()

    def store(self, vector: Any) -> Any:
        """Return the weights."""
        return vector

    def collect(self, seconds: float) -> list[Call]:
        """Go on to the next message, or by `seconds`."""
        self._clock.advance(self._lag)
        alive = [one for one in self.running.values() if not one.has_ended(self._clock.now)]
        due = min((one.due for one in alive), default=float("inf"))
        self._clock.advance(min(seconds, due - self._clock.now))
        calls = []
        for one in alive:
            if (message := one.pop_message(self._clock.now)) is not None:
                self._asked[len(self._asked)] = one
                calls.append(Call(len(self._asked) - 1, one.name, message))
        return calls

    def reply(self, answers: Mapping[int, Any]) -> None:
        """Let the workers go on."""
        for number, answer in answers.items():
            self._asked[number].continue_after(answer, self._clock.now)


class VirtualUpdate:
    """An update that ends TRAINING seconds after its start."""

    def __init__(self, clock: VirtualClock, update: Callable[[], UpdateReport], predicted_end: float) -> None:
        self.predicted_end = predicted_end
        self.seconds = TRAINING
        self._report = update()
        self._clock = clock
        self._end = clock.now + TRAINING

    def ended(self) -> bool:
        """Return True if the update has ended."""
        return self._clock.now >= self._end

    def report(self) -> UpdateReport | None:
        """Return the figures of the update; None while it runs."""
        return self._report if self.ended() else None


@dataclass
class Rig:
    """A job whose workers are virtual."""

    clock: VirtualClock
    ledger: RequestLedger
    cluster: VirtualCluster
    workers: LiveWorkers
    trained: list[Scored] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.clock.now
        self.loop = Loop(PARAMS, ("job", 1), self.ledger, self.workers, self._update)

    def iterate(self) -> IterationReport:
        """Carry out an iteration."""
        self.workers.publish(self.loop.iteration, POLICY)
        return self.loop.iterate()

    def _update(self, groups: Sequence[Sequence[Scored]]) -> UpdateReport:
        self.trained += [one for group in groups for one in group]
        return REPORT


MAX_AGE = {RequestKind.ROLLOUT: PARAMS.staleness.rollout, RequestKind.EXPLORE: PARAMS.staleness.explore}


@contextmanager
def virtual(
    scripts: Sequence[Script],
    ledger: type[RequestLedger] = RequestLedger,
    workers: type[LiveWorkers] = LiveWorkers,
    lag: float = 0.0,
) -> Iterator[Rig]:
    """Yield a job on a virtual clock."""
    clock = VirtualClock()
    book = ledger(LEASE, max_age=MAX_AGE)
    cluster = VirtualCluster(clock, scripts, lag)
    own: Any = OwnWorker(clock)
    time = SimpleNamespace(monotonic=clock, time=clock, sleep=clock.advance)

    def update(given: Callable[[], UpdateReport], predicted_end: float, least: float) -> VirtualUpdate:
        return VirtualUpdate(clock, given, predicted_end)

    with patch.multiple(live_workers, time=time, TICK_SECONDS=TICK, BackgroundUpdate=update):
        yield Rig(clock, book, cluster, workers(book, cluster, own, PARAMS, clock))
