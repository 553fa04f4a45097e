"""Plays a collective and computes the figures."""

from __future__ import annotations

from random import Random

from convoy_controllers.astrasim.loadstore.parameters import (
    Access,
    Algorithm,
    Fabric,
    Gpu,
    Links,
    Mode,
    Setup,
    Skew,
    Sync,
)
from convoy_controllers.astrasim.loadstore.run import run
from convoy_controllers.astrasim.parameters import CollectiveType
from convoy_controllers.astrasim.parsing.fields import InvalidInput
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.load_store.params import Params
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome

MOST_EVENTS = 10_000_000
"""Events of a run, about half a minute."""
_NS = 1e9


def simulate(params: Params, seed: int, perturbation: Perturbation | None) -> Outcome:
    """Simulate one collective and return its figures."""
    gpus = params.links.gpus
    random = Random(seed)  # noqa: S311 - a simulation, not a secret
    delays = tuple(random.uniform(0, params.launch_skew) for _ in range(gpus))
    slow = [1.0] * gpus
    if perturbation is not None and perturbation.kind is PerturbationKind.SLOW_RANK:
        slow[random.randrange(gpus)] = perturbation.magnitude
    differ = params.launch_skew > 0 or perturbation is not None
    try:
        found = run(_setup(params), MOST_EVENTS, Skew(delays, tuple(slow)) if differ else None, "params")
    except InvalidInput as error:
        raise InvalidSimulation(str(error)) from error
    seconds = float(found.time) / _NS
    figures = {
        "collectiveSeconds": seconds,
        "receivedBytes": float(found.moved),
        "bytesPerSecond": found.moved / seconds,
        "events": float(found.events),
        "offeredLaunchSkewSeconds": (max(delays) - min(delays)) / _NS,
    }
    return Outcome(figures, achieved=None if perturbation is None else perturbation.magnitude)


def _setup(params: Params) -> Setup:
    return Setup(
        collective=CollectiveType(params.collective),
        algorithm=Algorithm(params.algorithm),
        access=Access(params.access),
        size=params.size,
        sync=Sync(params.sync),
        mode=Mode(params.mode),
        seam=params.seam,
        gpu=Gpu(**params.gpu.model_dump(by_alias=False)),
        links=Links(**{**params.links.model_dump(by_alias=False), "fabric": Fabric(params.links.fabric)}),
    )
