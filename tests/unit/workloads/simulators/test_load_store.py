"""Tests of the simulator load-store: a collective of cache lines."""

from __future__ import annotations

import typing
from dataclasses import fields
from enum import StrEnum
from typing import Any

import pytest

from convoy_controllers.astrasim.loadstore import parameters
from convoy_controllers.astrasim.loadstore.algorithms import PLANS
from convoy_controllers.astrasim.loadstore.run import run as run_setup
from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.load_store.params import Gpu, Links, Params
from convoy_workloads.simulators.load_store.simulation import _setup
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import InvalidSimulation

PLAIN: Any = {"bytes": 4096, "gpu": {"workgroups": 4}, "links": {"gpus": 4}, "launchSkewNs": 0}
SLOW = Perturbation(kind=PerturbationKind.SLOW_RANK, magnitude=3)


def test_without_skew_the_figures_are_those_of_the_load_store_mode() -> None:
    figures = run("load-store", PLAIN, 1).figures
    expected = run_setup(_setup(Params.model_validate(PLAIN)))
    assert figures["collectiveSeconds"] == float(expected.time) / 1e9
    assert figures["receivedBytes"] == 3 * 4096 and figures["events"] == expected.events
    assert figures["bytesPerSecond"] == pytest.approx(expected.bandwidth * 1e9)
    assert run("load-store", PLAIN, 2).figures == figures


def test_the_defaults_are_those_of_the_load_store_mode() -> None:
    assert _setup(Params()) == parameters.Setup()


def test_the_seed_decides_when_each_gpu_launches() -> None:
    skewed = PLAIN | {"launchSkewNs": 800}
    one, two = run("load-store", skewed, 1).figures, run("load-store", skewed, 2).figures
    assert one == run("load-store", skewed, 1).figures != two
    assert 0 < one["offeredLaunchSkewSeconds"] <= 800e-9
    assert one["collectiveSeconds"] > run("load-store", PLAIN, 1).figures["collectiveSeconds"]


def test_a_slow_gpu_delays_the_collective() -> None:
    usual, slow = run("load-store", PLAIN, 3), run("load-store", PLAIN, 3, SLOW)
    assert slow.achieved == 3 and usual.achieved is None
    # Its launch alone takes twice 3,000 ns longer.
    assert slow.figures["collectiveSeconds"] > usual.figures["collectiveSeconds"] + 6000e-9


def test_a_large_message_is_computed_in_closed_form() -> None:
    figures = run("load-store", PLAIN | {"mode": "analytical", "bytes": 1 << 34}, 1).figures
    assert figures["events"] == 0
    assert figures["bytesPerSecond"] < 450e9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"links": {"latencyNs": -1}}, "params.links.latencyNs: "),
        ({"gpu": {"lineBytes": 0}}, "params.gpu.lineBytes: "),
        ({"gpu": {"lineBytes": 100}}, "params.gpu.lineBytes: must be one of 32, 64, 128, 256, is 100"),
        ({"gpu": {"workgroups": 200}}, "params.gpu.workgroups: must be at most 128, the computeUnits"),
        ({"algorithm": "direct"}, "params.algorithm: must be one of oneShot, twoShot, ring for all_reduce"),
        ({"bytes": 1 << 30, "launchSkewNs": 1}, "params.bytes: the run needs about "),
    ],
)
def test_wrong_parameters_are_refused_with_their_path(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSimulation) as caught:
        run("load-store", PLAIN | changes, 1)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("model", "field", "known"),
    [
        (Params, "algorithm", parameters.Algorithm),
        (Params, "access", parameters.Access),
        (Params, "sync", parameters.Sync),
        (Params, "mode", parameters.Mode),
        (Params, "collective", PLANS),
        (Links, "fabric", parameters.Fabric),
    ],
)
def test_the_names_are_those_of_the_load_store_mode(model: Any, field: str, known: type[StrEnum]) -> None:
    assert typing.get_args(model.model_fields[field].annotation) == tuple(map(str, known))


@pytest.mark.parametrize(("model", "kind"), [(Gpu, parameters.Gpu), (Links, parameters.Links)])
def test_no_parameter_is_missing(model: Any, kind: Any) -> None:
    assert list(model.model_fields) == [field.name for field in fields(kind)]
