"""The interface of a problem: samples to imitate, and a reward."""

from __future__ import annotations

from typing import Protocol

from torch import Generator, Tensor


class Problem(Protocol):
    """A set of prompts. The policy learns to make a sample for each prompt that has a high reward."""

    prompts: int
    """Number of prompts."""
    size: int
    """Number of values of a sample."""

    def examples(self, prompts: Tensor, generator: Generator) -> Tensor:
        """Return samples of the data from which the policy learns before the reinforcement."""

    def reward(self, prompts: Tensor, samples: Tensor) -> Tensor:
        """Return the reward of each sample, from 0 to 1."""


def difficulties(prompts: int, easiest: float, hardest: float) -> list[float]:
    """Return the share of wanted samples in the data of each prompt, evenly spaced on a logarithmic scale.

    The order is mixed: neighbours differ by the golden ratio of the range, so every batch has easy and hard
    prompts.
    """
    if prompts == 1:
        return [easiest]
    order = sorted(range(prompts), key=lambda one: (one * 0.6180339887498949) % 1)
    found = [0.0] * prompts
    for rank, prompt in enumerate(order):
        found[prompt] = hardest * (easiest / hardest) ** (rank / (prompts - 1))
    return found
