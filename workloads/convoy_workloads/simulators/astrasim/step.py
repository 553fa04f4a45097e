"""Makes the simulation of a step from the parameters and the seed."""

from __future__ import annotations

import math
from random import Random

from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    CollectiveNode,
    CollectiveType,
    ComputeNode,
    Implementation,
    Node,
    Optimization,
    Simulation,
    System,
    Workload,
)
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.astrasim.network import network
from convoy_workloads.simulators.astrasim.params import NetworkDimension, Params
from convoy_workloads.simulators.perturbation import Perturbation

LEAST_FACTOR = 0.1
"""Shortest computation of a rank, as a fraction of its duration."""


def step(params: Params, seed: int, perturbation: Perturbation | None) -> Simulation:
    """Return the simulation of one step."""
    ranks = math.prod(one.ranks for one in params.dimensions)
    random = Random(seed)  # noqa: S311 - a simulation, not a secret
    factors = [max(LEAST_FACTOR, random.gauss(1, params.noise)) for _ in range(ranks)]
    if perturbation is not None and perturbation.kind is PerturbationKind.SLOW_RANK:
        factors[random.randrange(ranks)] *= perturbation.magnitude
    return Simulation(
        network(params),
        System(
            {CollectiveType.ALL_REDUCE: tuple(map(_implementation, params.dimensions))},
            params.splits,
            params.memory_bandwidth,
            endpoint_delay=params.endpoint_delay,
            active_chunks=params.active_chunks,
            optimization=(
                Optimization.LOCAL_BANDWIDTH_AWARE if params.local_bandwidth_aware else Optimization.BASELINE
            ),
        ),
        Workload(tuple(_nodes(params, factor) for factor in factors)),
    )


def _implementation(one: NetworkDimension) -> Implementation:
    window = one.all_reduce.removeprefix("direct")
    if one.all_reduce.startswith("direct") and window:
        return Implementation(AlgorithmKind.DIRECT, int(window))
    return Implementation(AlgorithmKind(one.all_reduce))


def _nodes(params: Params, factor: float) -> tuple[Node, ...]:
    """Return the nodes of a rank whose computations take `factor` times as long.

    The all-reduces have ids in the order of the backward pass, so all ranks issue them in the same order.
    """
    buckets = params.buckets
    nodes: list[Node] = [_compute(0, (), params.forward_seconds * factor)]
    for bucket in range(buckets):
        nodes.append(_compute(bucket + 1, (bucket,), params.backward_seconds / buckets * factor))
        nodes.append(
            CollectiveNode(1000 + bucket, CollectiveType.ALL_REDUCE, params.bucket_bytes, deps=(bucket + 1,))
        )
    reduced = tuple(1000 + bucket for bucket in range(buckets))
    nodes.append(_compute(2000, (buckets, *reduced), params.optimizer_seconds * factor))
    return tuple(nodes)


def _compute(number: int, deps: tuple[int, ...], seconds: float) -> ComputeNode:
    return ComputeNode(number, deps, duration_us=round(seconds * 1e6))
