"""Problems and policies by their parameters, with base policies that have learned the data."""

from __future__ import annotations

import copy
from functools import lru_cache

import torch

from convoy_workloads.engines.spotlight.learning.grid import Grid
from convoy_workloads.engines.spotlight.learning.policy import PicturePolicy, PointPolicy, Policy
from convoy_workloads.engines.spotlight.learning.pretraining import pretrain
from convoy_workloads.engines.spotlight.learning.problem import Problem
from convoy_workloads.engines.spotlight.learning.ring import Ring
from convoy_workloads.engines.spotlight.params import GridProblem, RingProblem

BASE_SEED = 1
"""Seed of all base policies. Runs with other seeds start from the same base policy."""


def problem_of(params: RingProblem | GridProblem) -> Problem:
    """Return the problem."""
    if isinstance(params, RingProblem):
        return Ring(params.prompts, params.modes)
    return Grid(params.prompts, params.patterns, params.side)


def base_policy(params: RingProblem | GridProblem) -> Policy:
    """Return a copy of the base policy. The first call in a process trains it."""
    return copy.deepcopy(_trained(params))


def untrained_policy(params: RingProblem | GridProblem) -> Policy:
    """Return a policy with any weights, for workers that get theirs from the driver."""
    return _untrained(params, problem_of(params))


@lru_cache(maxsize=4)
def _trained(params: RingProblem | GridProblem) -> Policy:
    problem = problem_of(params)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(BASE_SEED)
        policy = _untrained(params, problem)
    pretrain(policy, problem, params.pretraining_steps, params.pretraining_batch, BASE_SEED)
    return policy.requires_grad_(False)


def _untrained(params: RingProblem | GridProblem, problem: Problem) -> Policy:
    if isinstance(params, RingProblem):
        return PointPolicy(problem.size, problem.prompts, params.width)
    return PicturePolicy(problem.size, problem.prompts, params.width, params.heads, params.layers)
