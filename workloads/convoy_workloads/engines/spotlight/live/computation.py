"""The work on requests: walks of the sampler, in steps that can be saved and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from convoy_workloads.engines.spotlight.learning.grpo import Scored
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.problem import Problem
from convoy_workloads.engines.spotlight.learning.reward import rewards
from convoy_workloads.engines.spotlight.learning.sampler import Sampler, Trajectory
from convoy_workloads.engines.spotlight.params import Selection
from convoy_workloads.engines.spotlight.workers import noise_key, payload_of, state_of, walk_of
from convoy_workloads.spot.ledger.request import Commit, Request, Result


class Computation(Protocol):
    """Work in steps. `state` is the work's own form of a request in progress."""

    steps: int
    """Number of steps of a request."""

    def load(self, request: Request, commit: Commit | None) -> Any:
        """Return the state to go on from."""

    def step(self, state: Any) -> int:
        """Return the number of finished steps."""

    def advance(self, version: int, states: Sequence[Any], until: int) -> list[Any]:
        """Return the states after `until` steps."""

    def commit(self, version: int, state: Any) -> Commit:
        """Return the progress in the form that is saved."""

    def result(self, state: Any) -> Result:
        """Return the result of a finished state."""


class Walks:
    """Walks of the sampler under the weights of a version, with their rewards."""

    def __init__(
        self,
        sampler: Sampler,
        problem: Problem,
        selection: Selection,
        policy: Callable[[int], Policy],
        step_seconds: float = 0.0,
    ) -> None:
        """`policy` returns the policy with the weights of a version. `step_seconds`: least time of a step."""
        self.steps = sampler.steps
        self._sampler = sampler
        self._problem = problem
        self._selection = selection
        self._policy = policy
        self._step_seconds = step_seconds

    def load(self, request: Request, commit: Commit | None) -> Trajectory:
        """Return the saved walk, or a walk without a step."""
        key = noise_key(request, self._selection)
        return self._sampler.start(key) if commit is None else walk_of(key, commit.state)

    def step(self, state: Trajectory) -> int:
        """Return the number of finished steps."""
        return state.step

    def advance(self, version: int, states: Sequence[Trajectory], until: int) -> list[Trajectory]:
        """Return the walks after `until` steps."""
        began = time.monotonic()
        found = self._sampler.resume(self._policy(version), version, states, until)
        time.sleep(max(0.0, self._step_seconds - (time.monotonic() - began)))
        return found

    def commit(self, version: int, state: Trajectory) -> Commit:
        """Return the walk in the form that is saved."""
        return Commit(version, state.step, state_of(state), state.path.nbytes + state.log_probs.nbytes)

    def result(self, state: Trajectory) -> Result:
        """Return the finished walk and its reward as a result of its oldest weights."""
        (reward,) = rewards(self._problem, [state])
        return Result(min(state.versions), payload_of(Scored(state, reward)))
