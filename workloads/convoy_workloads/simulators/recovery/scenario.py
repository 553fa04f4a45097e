"""Makes the scenario of a run: nodes, the job, and faults at random times."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from convoy_controllers.simulate.scenario import MachineSpec, Scenario, ScenarioEvent, ScenarioJob
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.recovery.params import Params

JOB = "job"
KINDS = {
    PerturbationKind.KILL_RANK: "kill_rank",
    PerturbationKind.KILL_POD: "kill_pod",
    PerturbationKind.NODE_LOSS: "node_loss",
}
"""Field of `Params.faults` for each kind of faults."""
SLOW = frozenset({PerturbationKind.SLOW_NODE, PerturbationKind.SLOW_RANK})
"""Kinds that make steps longer, as one event over the whole time of the perturbation."""


def scenario(params: Params, seed: int, perturbation: Perturbation | None) -> tuple[Scenario, list[int]]:
    """Return the scenario of a run, and the numbers of the perturbation's own events."""
    events = [event for kind in KINDS for event in _background(params, seed, kind)]
    own: list[int] = []
    if perturbation is not None and perturbation.kind in SLOW:
        own.append(len(events))
        events.append(
            _slow(params, perturbation, _stream(seed, f"perturbation/{perturbation.kind}").random())
        )
    elif perturbation is not None:
        stream = _stream(seed, f"perturbation/{perturbation.kind}")
        window = min(perturbation.end, params.seconds, _nominal_seconds(params)) - perturbation.start
        for _ in range(int(perturbation.magnitude)):
            at = perturbation.start + stream.random() * max(0.0, window)
            own.append(len(events))
            events.extend(_fault(params, perturbation.kind, at, stream))
    made = Scenario(
        # The seed of the latencies. The faults do not depend on it.
        seed=seed,
        nodes=[MachineSpec(name=node_name(number)) for number in range(params.nodes)],
        jobs=[ScenarioJob.model_validate({"job": _manifest(params), "program": params.program.to_dict()})],
        events=events,
        latencies=params.latencies,
        until=params.seconds,
    )
    return made, own


def _background(params: Params, seed: int, kind: PerturbationKind) -> Iterator[ScenarioEvent]:
    """Yield the faults of one kind over the whole run."""
    rate = getattr(params.faults, KINDS[kind])
    stream, at = _stream(seed, kind), 0.0
    while rate and (at := at + stream.expovariate(rate / 3600)) < params.seconds:
        yield from _fault(params, kind, at, stream)


def _fault(
    params: Params, kind: PerturbationKind, at: float, stream: random.Random
) -> Iterator[ScenarioEvent]:
    """Yield the events of one fault. The fault comes first."""
    target = stream.random()
    match kind:
        case PerturbationKind.KILL_RANK:
            yield ScenarioEvent(at=at, do="killRank", job=JOB, rank=int(target * params.replicas))
        case PerturbationKind.KILL_POD:
            yield ScenarioEvent(at=at, do="deletePod", pod=f"{JOB}-worker-{int(target * params.replicas)}")
        case _:
            node = node_name(int(target * params.nodes))
            yield ScenarioEvent(at=at, do="killNode", node=node)
            yield ScenarioEvent(at=min(86_400.0, at + params.node_return_seconds), do="returnNode", node=node)


def _slow(params: Params, perturbation: Perturbation, target: float) -> ScenarioEvent:
    """Return the event that makes a rank slow, or a node on which the job starts. `target`: from 0 to 1."""
    at, factor, seconds = perturbation.start, perturbation.magnitude, perturbation.duration
    number = int(target * params.replicas)
    if perturbation.kind is PerturbationKind.SLOW_RANK:
        return ScenarioEvent(at=at, do="slowRank", job=JOB, rank=number, factor=factor, seconds=seconds)
    node = sorted(node_name(one) for one in range(params.nodes))[number]  # in the scheduler's order
    return ScenarioEvent(at=at, do="slowNode", node=node, factor=factor, seconds=seconds)


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number}"


def _nominal_seconds(params: Params) -> float:
    """Return the length of the run without any fault or save."""
    return params.program.total_steps * params.program.step_seconds


def _manifest(params: Params) -> dict[str, Any]:
    tiers: dict[str, Any] = {"local": {}}
    if params.peer_copies:
        tiers["peer"] = {"copies": params.peer_copies}
    return {
        "metadata": {"name": JOB},
        "spec": {
            "engine": {"name": "simulated"},
            "roles": [{"name": "worker", "replicas": params.replicas}],
            "recovery": params.recovery.to_dict(),
            "checkpoint": {"interval": params.checkpoint_interval, "tiers": tiers},
        },
    }


def _stream(seed: int, purpose: str) -> random.Random:
    return random.Random(f"{seed}/recovery/{purpose}")  # noqa: S311 - must be repeatable
