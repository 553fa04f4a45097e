"""Flow matching: the policy learns the data before the reinforcement.

For an example x0, noise e and a time t, the point is (1 - t) x0 + t e, and the wanted velocity e - x0
(Y. Lipman et al., Flow Matching for Generative Modeling, ICLR 2023).
"""

from __future__ import annotations

import math

import torch

from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.problem import Problem

LEARNING_RATE = 3e-3


def pretrain(policy: Policy, problem: Problem, steps: int, batch: int, seed: int) -> float:
    """Train the policy on examples. Return the loss of the last step."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    loss = torch.zeros(())
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))
        prompts = torch.randint(problem.prompts, (batch,), generator=generator)
        examples = problem.examples(prompts, generator)
        noise = torch.randn(examples.shape, generator=generator)
        times = torch.rand(batch, generator=generator)
        points = torch.lerp(examples, noise, times[:, None])
        loss = (policy(points, times, prompts) - (noise - examples)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()
