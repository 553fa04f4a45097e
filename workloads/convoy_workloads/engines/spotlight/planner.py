"""Planners choose the prompt of the next explored seed.

The planner gain takes the prompt whose contrast one more seed will probably raise most:

    index = q (c(g + 1, b) - c(g, b)) + (1 - q) (c(g, b + 1) - c(g, b)) + BONUS sqrt(log(1 + N) / (1 + n))

c(g, b) is the largest standard deviation of the rewards of a group with `g` good and `b` bad samples to
choose from, if good ones have the reward 1 and bad ones 0. The first good sample raises it most. q is the
mean of a Beta posterior of a good sample, which is remembered for each prompt and decays. n is the number of
seeds of the prompt in this iteration, and N that of all prompts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

GOOD = 0.5
"""Reward from which a sample is good."""
DECAY = 0.5
"""Factor of a prompt's memory from one of its iterations to the next."""
PRIOR = (0.5, 1.5)
"""Counts of good and bad samples before the first one."""
BONUS = 0.02


@functools.cache
def contrast(good: int, bad: int, size: int) -> float:
    """Return the largest standard deviation in a group of `size` samples, of rewards that are 1 or 0."""
    fewest, most = max(0, size - bad), min(good, size)
    chosen = min(max(size // 2, fewest), most)
    return math.sqrt(chosen * min(bad, size - chosen)) / size


class Planner(Protocol):
    """A rule for the order of exploring. A seed counts from `next_prompt` on, its reward from `record` on."""

    def start(self, prompts: Sequence[int]) -> None:
        """Begin an iteration with these prompts."""

    def next_prompt(self) -> int | None:
        """Return the prompt of the next seed; None if no further seed is worth its time."""

    def record(self, prompt: int, reward: float) -> None:
        """Record the reward of a seed."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the planner remembers between iterations."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the saved memory."""


class UniformPlanner:
    """Gives all prompts of an iteration the same number of seeds."""

    def __init__(self, max_seeds: int) -> None:
        self._max = max_seeds
        self._planned: dict[int, int] = {}

    def start(self, prompts: Sequence[int]) -> None:
        """Begin an iteration with these prompts."""
        self._planned = dict.fromkeys(prompts, 0)

    def next_prompt(self) -> int | None:
        """Return the prompt with the fewest seeds; None if all have the most that is allowed."""
        prompt = min(self._planned, key=lambda one: self._planned[one], default=None)
        if prompt is None or self._planned[prompt] >= self._max:
            return None
        self._planned[prompt] += 1
        return prompt

    def record(self, prompt: int, reward: float) -> None:
        """Do nothing: the order does not depend on rewards."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: this planner remembers nothing between iterations."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Prompt:
    planned: int = 0
    good: int = 0
    bad: int = 0


class GainPlanner:
    """Gives more seeds to prompts that lack good or bad samples."""

    def __init__(self, max_seeds: int, group_size: int) -> None:
        self._max = max_seeds
        self._size = group_size
        self._current: dict[int, _Prompt] = {}
        self._memory: dict[int, tuple[float, float]] = {}
        """Decayed counts of good and bad samples of earlier iterations, by prompt."""

    def start(self, prompts: Sequence[int]) -> None:
        """Begin an iteration with these prompts. The previous one becomes memory."""
        for prompt, found in self._current.items():
            good, bad = self._memory.get(prompt, (0.0, 0.0))
            self._memory[prompt] = (DECAY * good + found.good, DECAY * bad + found.bad)
        self._current = {prompt: _Prompt() for prompt in prompts}

    def next_prompt(self) -> int | None:
        """Return the prompt with the highest index; None if no prompt can have more contrast."""
        total = sum(one.planned for one in self._current.values())
        open_prompts = [prompt for prompt, one in self._current.items() if self._is_open(one)]
        best = max(open_prompts, key=lambda prompt: self._index(prompt, total), default=None)
        if best is not None:
            self._current[best].planned += 1
        return best

    def record(self, prompt: int, reward: float) -> None:
        """Count a good or a bad sample."""
        if (found := self._current.get(prompt)) is not None:
            found.good += reward >= GOOD
            found.bad += reward < GOOD

    def _is_open(self, one: _Prompt) -> bool:
        full = one.good >= self._size // 2 and one.bad >= self._size - self._size // 2
        return not full and one.planned < self._max

    def _index(self, prompt: int, total: int) -> float:
        one = self._current[prompt]
        good, bad = self._memory.get(prompt, (0.0, 0.0))
        good, bad = good + one.good + PRIOR[0], bad + one.bad + PRIOR[1]
        chance = good / (good + bad)
        present = contrast(one.good, one.bad, self._size)
        with_good = contrast(one.good + 1, one.bad, self._size) - present
        with_bad = contrast(one.good, one.bad + 1, self._size) - present
        bonus = BONUS * math.sqrt(math.log(1 + total) / (1 + one.planned))
        return chance * with_good + (1 - chance) * with_bad + bonus

    def state_dict(self) -> dict[str, Any]:
        """Return the memory, with the prompts of the running iteration."""
        return {
            "memory": [[prompt, *counts] for prompt, counts in self._memory.items()],
            "current": [[prompt, one.planned, one.good, one.bad] for prompt, one in self._current.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the saved memory."""
        self._memory = {prompt: (good, bad) for prompt, good, bad in state["memory"]}
        self._current = {prompt: _Prompt(*counts) for prompt, *counts in state["current"]}
