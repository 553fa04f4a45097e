"""Measures the cost of ledger and workers: the engine without exploring is compared with a plain GRPO loop.

Both train on the same samples, so their weights have the same bits. `make bench-spotlight` measures what the
engine is for: the time and the cost to a reward.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from convoy_workloads.bench.arms import Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.engines.spotlight import ENGINE
from convoy_workloads.engines.spotlight.iteration import SEEDS, prompts_of
from convoy_workloads.engines.spotlight.learning.grpo import Ranks, Rates, Scored, Trainer
from convoy_workloads.engines.spotlight.learning.models import base_policy, problem_of
from convoy_workloads.engines.spotlight.learning.noise import NoiseKey
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.reward import rewards
from convoy_workloads.engines.spotlight.learning.sampler import Sampler
from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.engines.spotlight.simulated.run import Run


def with_workers(params: Mapping[str, Any]) -> dict[str, Any]:
    """Train with the ledger and the simulated workers."""
    run = Run(Params.model_validate(params))
    return _timed(run.iterate, run.policy, params["steps"])


def plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Train in a plain loop."""
    found = Params.model_validate(params)
    problem, base = problem_of(found.problem), base_policy(found.problem)
    sampler = Sampler(found.sampler_steps, found.sigma, problem.size)
    policy = copy.deepcopy(base).requires_grad_(True)
    trainer = Trainer(policy, base, sampler, Rates(found.learning_rate, found.kl), Ranks())
    count, size, number = found.prompts_per_iteration, found.group_size, 0

    def iterate() -> None:
        nonlocal number
        first = number * SEEDS + SEEDS // 2
        prompts = prompts_of(found.seed, number, count, problem.prompts)
        keys = [
            NoiseKey(f"spotlight-{found.seed}", prompt, seed, (seed,))
            for prompt in prompts
            for seed in range(first, first + size)
        ]
        walks = sampler.resume(policy, number, [sampler.start(key) for key in keys])
        scored = [Scored(*one) for one in zip(walks, rewards(problem, walks), strict=True)]
        trainer.update([scored[place * size : (place + 1) * size] for place in range(count)])
        number += 1

    return _timed(iterate, policy, params["steps"])


def _timed(iterate: Callable[[], object], policy: Policy, steps: int) -> dict[str, Any]:
    """Return the processor time of an iteration, and the SHA-256 of the weights at the end."""
    iterate()
    began = time.process_time()
    for _ in range(steps - 1):
        iterate()
    seconds = time.process_time() - began
    digest = hashlib.sha256()
    for weights in policy.state_dict().values():
        digest.update(weights.numpy().tobytes())
    return {"processor_seconds_per_step": seconds / (steps - 1), "parameters": digest.hexdigest()}


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: the engine, the plain loop, and the plain loop again as the negative control."""
    arguments = {"params": dict(options)}
    return Arms(
        function("spotlight without exploring", with_workers, arguments),
        (function("plain GRPO loop", plain, arguments),),
        function("plain GRPO loop again", plain, arguments),
    )


def measures(options: Mapping[str, Any]) -> list[Measure]:
    """Return the measure: the processor time of an iteration."""
    return [
        Measure(
            name="processor time of an iteration",
            unit="seconds",
            value_of=lambda trial: trial.result["processor_seconds_per_step"],
            target=0.5,
        )
    ]


BENCH = Bench(
    sizes={
        "small": {**ENGINE.small, "selection": "none"},
        "full": {"steps": 100, "selection": "none", "problem": {"kind": "ring", "pretrainingSteps": 200}},
    },
    arms=arms,
    measures=measures,
    equal=(Equality(key="parameters", name="runs whose weights differ from the first, by SHA-256"),),
    rounds=5,
)
