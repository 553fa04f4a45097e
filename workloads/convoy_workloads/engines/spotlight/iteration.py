"""The loop: sample the chosen seeds, train on them, and meanwhile explore seeds for the next iteration.

Iteration k has four parts.
1. Rollouts with the weights k, from seeds that iteration k - 1 has chosen. Where seeds are missing, any do.
2. Training on the on-demand accelerators. Meanwhile spot nodes explore seeds for the prompts of k + 1, with
   the weights k, which are one version behind those that will use the seeds.
3. The end of the training cuts the exploring off. The seeds whose rewards differ most are chosen.
4. The weights k + 1 are published.

A low rank correlation of stale and fresh rewards moves the exploring of the next iteration to its beginning,
before the rollouts. Time comes from the workers, and every wait has a deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convoy_workloads.engines.spotlight.canary import Probe, StalenessGuard, draw_probes, mean_spearman
from convoy_workloads.engines.spotlight.learning.grpo import Scored, UpdateReport
from convoy_workloads.engines.spotlight.params import Algorithm
from convoy_workloads.engines.spotlight.planner import GainPlanner, Planner, UniformPlanner
from convoy_workloads.engines.spotlight.selection import first, max_variance
from convoy_workloads.engines.spotlight.workers import Training, Workers, noise_key, scored_of
from convoy_workloads.spot.ledger.request import Request, RequestKind, RequestState
from convoy_workloads.spot.ledger.requests import RequestLedger

SEEDS = 2**20
"""Number of seeds of each iteration. No seed is used in two iterations."""
BACKLOG = 2
"""Requests for each group of spot nodes that the exploring keeps planned."""
EXCEPTIONAL = 2
"""Seeds for each trained sample that are explored first after a low rank correlation."""
MIN_GROUP = 2
"""Fewest samples of a prompt with an advantage."""

Update = Callable[[Sequence[Sequence[Scored]]], UpdateReport]


@dataclass(slots=True)
class Choice:
    """The seeds that exploring has chosen for an iteration."""

    seeds: dict[int, list[int]] = field(default_factory=dict)
    """Chosen seeds by prompt."""
    probes: list[Probe] = field(default_factory=list)
    explored: int = 0
    """Number of seeds that were explored."""

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        return {
            "seeds": [[prompt, seeds] for prompt, seeds in self.seeds.items()],
            "probes": [[one.prompt, one.seed, one.stale_reward] for one in self.probes],
            "explored": self.explored,
        }

    @staticmethod
    def parse(saved: Mapping[str, Any]) -> Choice:
        """Return the choice that `to_json` described."""
        probes = [Probe(*one) for one in saved["probes"]]
        return Choice(dict(saved["seeds"]), probes, saved["explored"])


@dataclass(frozen=True, slots=True)
class IterationReport:
    """Figures of one iteration."""

    iteration: int
    end: float
    """Seconds on the clock of the workers at which the next weights were published."""
    update: UpdateReport | None
    """None if there was nothing to train on."""
    trained: int
    """Number of samples that were trained on."""
    explored: int
    """Number of seeds that were explored for this iteration."""
    correlation: float | None
    """Rank correlation of stale and fresh rewards."""
    stale_allowed: bool
    """False if the next iteration explores with fresh weights."""
    stale_trips: int
    """Number of such iterations so far."""


def prompts_of(seed: int, iteration: int, count: int, prompts: int) -> list[int]:
    """Return the prompts of an iteration. Each prompt has its turn before one comes again, except for a
    remainder that does not fill an iteration.
    """
    turns = prompts // count
    order = np.random.default_rng((seed, iteration // turns)).permutation(prompts)
    first = iteration % turns * count
    return [int(one) for one in order[first : first + count]]


class Loop:
    """The iterations of one job."""

    def __init__(
        self,
        params: Algorithm,
        job: tuple[str, int],
        ledger: RequestLedger,
        workers: Workers,
        update: Update,
    ) -> None:
        """Prepare the first iteration. `job`: the job's name and its random seed."""
        self._params = params
        self._job, self._seed = job
        self._ledger = ledger
        self._workers = workers
        self._update = update
        self._planner: Planner = (
            UniformPlanner(params.max_seeds)
            if params.planner == "uniform"
            else GainPlanner(params.max_seeds, params.group_size)
        )
        self._guard = StalenessGuard(params.canary.min_spearman)
        self._choice = Choice()
        self.iteration = 0
        self.trained = 0
        """Number of samples that were trained on so far."""

    # One iteration

    def iterate(self) -> IterationReport:
        """Carry out the next iteration. The weights of its number must be published."""
        number = self.iteration
        if self._explores and not self._choice.explored and not self._overlaps:
            self._choice = self._explore_first(number)
        explored = self._choice.explored
        groups = self._groups(number)
        samples = sum(map(len, groups))
        choice, update = Choice(), None
        if groups:
            training = self._workers.train(lambda: self._update(groups), samples)
            if self._overlaps:
                choice = self._explore_beside(number + 1, training)
            update = self._wait(training)
        self.trained += samples
        self._choice = choice
        self._ledger.close_iterations(number + 1)
        self.iteration += 1
        return IterationReport(
            number,
            self._workers.now(),
            update,
            samples,
            explored,
            self._guard.last,
            self._guard.stale_allowed,
            self._guard.trips,
        )

    @property
    def _explores(self) -> bool:
        return self._params.selection != "none"

    @property
    def _overlaps(self) -> bool:
        """Return True if seeds may be explored with weights that are one version old."""
        return self._explores and self._params.staleness.explore > 0 and self._guard.stale_allowed

    # Rollouts

    def _groups(self, number: int) -> list[list[Scored]]:
        """Return the samples to train on, by prompt."""
        prompts = self._prompts(number)
        explored = {prompt: self._consume_explored(number, prompt) for prompt in prompts}
        seeds = {prompt: self._seeds(number, prompt, len(explored[prompt])) for prompt in prompts}
        wanted = [self._rollout(number, prompt, one) for prompt in prompts for one in seeds[prompt]]
        probes = [self._rollout(number, one.prompt, one.seed) for one in self._choice.probes]
        self._await([*wanted, *probes])
        self._record_canary(number, probes)
        sampled: dict[int, list[Scored]] = {prompt: [] for prompt in prompts}
        for request, result in self._ledger.consume([one.id for one in wanted], number):
            sampled[request.prompt].append(scored_of(self._key(request), result.payload))
        self._ledger.consume([one.id for one in probes], number)
        groups = [explored[prompt] + sampled[prompt] for prompt in prompts]
        return [one for one in groups if len(one) >= MIN_GROUP]

    def _consume_explored(self, number: int, prompt: int) -> list[Scored]:
        """Consume and return the samples that exploration chose for a prompt."""
        wanted = [
            Request(self._job, number, prompt, seed, RequestKind.EXPLORE, number).id
            for seed in self._choice.seeds.get(prompt, ())
        ]
        return [
            scored_of(self._key(request), result.payload)
            for request, result in self._ledger.consume(wanted, number)
        ]

    def _seeds(self, number: int, prompt: int, have: int) -> list[int]:
        """Return the seeds of a prompt's rollouts: the chosen ones that have no sample, then unused ones."""
        chosen = [] if have else self._choice.seeds.get(prompt, [])
        missing = self._params.group_size - have - len(chosen)
        # The upper half of the seeds is never explored.
        return chosen + [number * SEEDS + SEEDS // 2 + one for one in range(max(0, missing))]

    def _rollout(self, number: int, prompt: int, seed: int) -> Request:
        return Request(self._job, number, prompt, seed, RequestKind.ROLLOUT, number)

    def _await(self, requests: Sequence[Request]) -> None:
        """Wait until the requests have ended. Those that last too long are cancelled."""
        if not requests:
            return
        ids = {one.id for one in requests}
        deadline = self._workers.now() + self._params.phase_seconds
        self._workers.submit(requests)
        while any(self._ledger.state(one) in _RUNNING for one in ids) and self._workers.now() < deadline:
            ids -= {one.request.id for one in self._workers.poll(deadline)}
        self._workers.cancel(one for one in ids if self._ledger.state(one) in _RUNNING)

    def _record_canary(self, number: int, probes: Sequence[Request]) -> None:
        """Compare the stale rewards of the probes with their fresh ones."""
        fresh = {
            (request.prompt, request.seed): result.payload["reward"]
            for request, result in self._ledger.results(RequestKind.ROLLOUT, number)
        }
        pairs: dict[int, list[tuple[float, float]]] = {}
        for one in self._choice.probes:
            if (one.prompt, one.seed) in fresh:
                pairs.setdefault(one.prompt, []).append((one.stale_reward, fresh[one.prompt, one.seed]))
        self._guard.record(mean_spearman(pairs.values()))

    # Exploring

    def _explore_beside(self, number: int, training: Training) -> Choice:
        """Explore seeds of an iteration until the training ends."""
        self._planner.start(self._prompts(number))
        asked: Counter[int] = Counter()
        waiting: dict[str, None] = {}
        rewards: dict[Request, float] = {}
        while training.report() is None:
            missing = BACKLOG * self._workers.groups() - len(waiting)
            added = self._next_seeds(number, number - 1, missing, asked)
            waiting |= dict.fromkeys(one.id for one in added)
            self._workers.submit(added)
            for one in self._workers.poll(self._patience(training)):
                if one.request.kind is RequestKind.EXPLORE:
                    waiting.pop(one.request.id, None)
                    rewards[one.request] = one.reward
                    self._planner.record(one.request.prompt, one.reward)
        self._workers.cancel(list(waiting))
        return self._choose(number, rewards, stale=True)

    def _explore_first(self, number: int) -> Choice:
        """Explore seeds with the weights that will be trained, before anything else."""
        self._planner.start(self._prompts(number))
        params = self._params
        # Exploring first is the rule without stale weights, and otherwise an exception that must not last.
        most = params.max_seeds if not params.staleness.explore else EXCEPTIONAL * params.group_size
        count = most * params.prompts_per_iteration
        requests = self._next_seeds(number, number, count, Counter())
        self._await(requests)
        rewards = {
            request: result.payload["reward"]
            for request, result in self._ledger.results(RequestKind.EXPLORE, number)
        }
        return self._choose(number, rewards, stale=False)

    def _next_seeds(self, number: int, version: int, count: int, asked: Counter[int]) -> list[Request]:
        """Return requests for the next seeds in the planner's order, at most `count`. `asked`: number of
        requests so far of each prompt.
        """
        added: list[Request] = []
        while len(added) < count and (prompt := self._planner.next_prompt()) is not None:
            seed = number * SEEDS + asked[prompt]
            asked[prompt] += 1
            added.append(Request(self._job, number, prompt, seed, RequestKind.EXPLORE, version))
        return added

    def _choose(self, number: int, rewards: Mapping[Request, float], stale: bool) -> Choice:
        """Choose the seeds of each prompt. End the requests whose samples nobody needs any more."""
        found = Choice(explored=len(rewards))
        reused = self._params.train_on == "explored" or (not stale and self._params.selection == "fullSeed")
        for prompt in self._prompts(number):
            own = sorted((one.seed, reward) for one, reward in rewards.items() if one.prompt == prompt)
            kept = self._kept([reward for _, reward in own])
            found.seeds[prompt] = [own[place][0] for place in kept]
        kept_ids = {one.id for one in rewards if reused and one.seed in found.seeds.get(one.prompt, ())}
        self._ledger.consume([one.id for one in rewards if one.id not in kept_ids], number)
        if stale and rewards:
            found.probes = self._probes(number, rewards)
        return found

    def _kept(self, rewards: Sequence[float]) -> list[int]:
        """Return the positions of the chosen seeds of a prompt."""
        size = self._params.group_size
        return max_variance(rewards, size) if self._params.choose == "maxVariance" else first(rewards, size)

    def _probes(self, number: int, rewards: Mapping[Request, float]) -> list[Probe]:
        """Return explored seeds at random, chosen or not, of prompts at random."""
        explored: dict[int, list[Probe]] = {}
        for one, reward in sorted(rewards.items(), key=lambda pair: (pair[0].prompt, pair[0].seed)):
            explored.setdefault(one.prompt, []).append(Probe(one.prompt, one.seed, reward))
        random = np.random.default_rng((self._seed, number, 1))
        return draw_probes(list(explored.values()), self._params.canary.seeds, random)

    # Parts

    def _prompts(self, number: int) -> list[int]:
        count = self._params.prompts_per_iteration
        return prompts_of(self._seed, number, count, self._params.problem.prompts)

    def _key(self, request: Request) -> Any:
        return noise_key(request, self._params.selection)

    def _patience(self, training: Training) -> float:
        """Return the time until which to wait for the next event, in seconds on the clock of the workers."""
        now = self._workers.now()
        return max(now, training.predicted_end) + self._params.lease_seconds

    def _wait(self, training: Training) -> UpdateReport:
        """Wait until the training has ended. The trainer has on-demand nodes, and fails by an exception."""
        while (report := training.report()) is None:
            self._workers.poll(self._patience(training))
        return report

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return what the next iteration needs, besides the ledger and the weights."""
        return {
            "iteration": self.iteration,
            "trained": self.trained,
            "choice": self._choice.to_json(),
            "guard": self._guard.state_dict(),
            "planner": self._planner.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the saved state."""
        self.iteration = state["iteration"]
        self.trained = state["trained"]
        self._choice = Choice.parse(state["choice"])
        self._guard.load_state_dict(state["guard"])
        self._planner.load_state_dict(state["planner"])


_RUNNING = (RequestState.PLANNED, RequestState.LEASED)
