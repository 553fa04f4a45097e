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


def scenario(params: Params, seed: int, perturbation: Perturbation | None) -> tuple[Scenario, list[int]]:
    """Return the scenario of a run, and the numbers of the perturbation's own events."""
    events = [event for kind in KINDS for event in _background(params, seed, kind)]
    own: list[int] = []
    if perturbation is not None:
        stream = _stream(seed, f"perturbation/{perturbation.kind}")
        window = min(perturbation.end, params.seconds, _nominal_seconds(params)) - perturbation.start
        for _ in range(int(perturbation.magnitude)):
            at = perturbation.start + stream.random() * max(0.0, window)
            own.append(len(events))
            events.extend(_fault(params, perturbation.kind, at, stream))
    made = Scenario(
        # The seed of the latencies. The faults do not depend on it.
        seed=seed,
        nodes=[MachineSpec(name=f"node-{number}") for number in range(params.nodes)],
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
            node = f"node-{int(target * params.nodes)}"
            yield ScenarioEvent(at=at, do="killNode", node=node)
            yield ScenarioEvent(at=min(86_400.0, at + params.node_return_seconds), do="returnNode", node=node)


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
