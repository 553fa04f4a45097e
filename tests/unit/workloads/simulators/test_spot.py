"""Tests of the simulator of workers on spot nodes."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import InvalidSimulation
from convoy_workloads.simulators.spot.params import Params
from convoy_workloads.simulators.spot.simulation import run_trace
from convoy_workloads.spot.trace import Change, SpotTrace, from_counts, join, steady


def figures(counts: list[tuple[float, int]], seconds: float = 3600.0, **params: Any) -> dict[str, float]:
    given = Params.model_validate(
        {"nodes": 2, "bootSeconds": 0, "onDemandPrice": 10, "spotPrice": 1, **params}
    )
    return run_trace(given, from_counts(counts, seconds)).figures


def test_on_demand_nodes_work_from_boot_to_end() -> None:
    found = figures([(0.0, 2)], policy="OnDemand", bootSeconds=360)
    assert (found["cost"], found["usefulNodeHours"], found["bootNodeHours"]) == (20.0, 1.8, 0.2)
    assert found["onDemandShare"] == 1.0


def test_workers_wait_for_spot_nodes_without_a_fall_back() -> None:
    found = figures([(0.0, 2), (1800.0, 0)], policy="SpotOnly", surrenderSeconds=0)
    assert (found["cost"], found["usefulShare"], found["losses"]) == (1.0, 0.5, 2.0)


def test_the_pool_falls_back_after_its_wait_and_returns_after_its_stay() -> None:
    rules = {"after": "5m", "minimumStay": "20m"}
    # No spot node from 600 to 1200: on-demand from 900, and back at 2100.
    found = figures([(0.0, 2), (600.0, 0), (1200.0, 2)], fallback=rules, surrenderSeconds=0)
    assert found["switches"] == 2.0
    assert found["usefulNodeHours"] == pytest.approx(2 * (3600 - 300) / 3600)
    assert found["cost"] == pytest.approx(2 * (600 + 2400 + 10 * 1200) / 3600)
    assert found["idleNodeHours"] == pytest.approx(2 * 900 / 3600)
    assert found["residual"] == 0.0


def test_on_demand_nodes_top_up_missing_spot_nodes() -> None:
    counts = [(0.0, 2), (600.0, 1), (1800.0, 2)]
    rules = {"after": "5m", "minimumStay": "10m"}
    plain = figures(counts, fallback=rules, surrenderSeconds=0)
    assert plain["switches"] == 0.0
    assert plain["usefulNodeHours"] == pytest.approx((2 * 3600 - 1200) / 3600)
    # One spot node from 600 to 1800: an on-demand node from 900, and back at 1800.
    found = figures(counts, fallback={**rules, "spotBelow": 2}, surrenderSeconds=0)
    assert found["switches"] == 2.0
    assert found["usefulNodeHours"] == pytest.approx((2 * 3600 - 300) / 3600)
    assert found["cost"] == pytest.approx((2 * 3600 - 1200 + 10 * 900) / 3600)


@pytest.mark.parametrize(("losses", "switches"), [(100, 0.0), (101, 1.0)])
def test_a_limit_of_many_interruptions_can_be_exceeded(losses: int, switches: float) -> None:
    rules = {"maxInterruptionsPerHour": 100, "minimumStay": "2h"}
    found = figures([(0.0, 200), (600.0, 200 - losses)], nodes=200, fallback=rules)
    assert found["switches"] == switches


def test_many_interruptions_move_new_workers_to_on_demand_nodes_at_once() -> None:
    counts = [(0.0, 2), (600.0, 1), (601.0, 2), (1200.0, 1), (1201.0, 2)]
    calm = figures(counts, fallback={"maxInterruptionsPerHour": 5})
    found = figures(counts, fallback={"maxInterruptionsPerHour": 1, "minimumStay": "2h"})
    assert calm["switches"] == 0.0
    assert found["switches"] == 1.0
    assert found["onDemandShare"] > 0.2


@pytest.mark.parametrize(
    ("notice", "commit", "lost", "idle"),
    [(30.0, 600.0, 0.0, 5.0), (4.0, 600.0, 550.0, 0.0), (0.0, 100.0, 50.0, 0.0)],
)
def test_a_worker_loses_what_it_has_not_saved(notice: float, commit: float, lost: float, idle: float) -> None:
    trace = SpotTrace(2000.0, 1, (Change(0.0, ("a",), (), 0.0), Change(1150.0, (), ("a",), notice)))
    given = {"nodes": 1, "policy": "SpotOnly", "bootSeconds": 0, "commitSeconds": commit}
    found = run_trace(Params.model_validate(given), trace).figures
    assert found["lostNodeHours"] * 3600 == pytest.approx(lost, abs=0.01)
    assert found["idleNodeHours"] * 3600 == pytest.approx(idle, abs=0.01)
    assert found["usefulNodeHours"] * 3600 == pytest.approx(1150 - lost - idle, abs=0.01)


def test_a_node_that_vanishes_while_it_boots_never_works() -> None:
    counts = [(0.0, 1), (30.0, 0), (40.0, 1), (120.0, 0)]
    found = figures(counts, policy="SpotOnly", nodes=1, bootSeconds=60, surrenderSeconds=0)
    assert found["bootNodeHours"] * 3600 == pytest.approx(90.0, abs=0.01)
    assert found["usefulNodeHours"] * 3600 == pytest.approx(20.0, abs=0.01)


def test_the_perturbation_sets_the_losses_of_its_time() -> None:
    params = {"nodes": 32, "zones": 8, "hours": 24}
    plain = run("spot", params, 1)
    perturbed = run("spot", params, 1, Perturbation(kind=PerturbationKind.SPOT_TRACE, magnitude=4.0))
    assert plain.achieved is None
    assert perturbed.achieved == pytest.approx(4.0, rel=0.1)
    assert perturbed.figures["losses"] > 3 * plain.figures["losses"]
    neutral = run("spot", params, 1, Perturbation(kind=PerturbationKind.SPOT_TRACE, magnitude=0.0))
    assert (neutral.achieved, neutral.figures["losses"]) == (0.0, 0.0)
    part = Perturbation(kind=PerturbationKind.SPOT_TRACE, magnitude=4.0, start=3600, duration=36_000)
    assert run("spot", params, 1, part).achieved == pytest.approx(4.0, rel=0.3)
    late = Perturbation(kind=PerturbationKind.SPOT_TRACE, magnitude=4.0, start=86_400)
    assert run("spot", {**params, "hours": 1}, 1, late).achieved is None


def test_a_boot_delay_is_billed() -> None:
    delay = Perturbation(kind=PerturbationKind.BOOT_DELAY, magnitude=600.0)
    plain, delayed = run("spot", {"hours": 6}, 1), run("spot", {"hours": 6}, 1, delay)
    assert delayed.achieved == 600.0
    assert delayed.figures["bootNodeHours"] > 3 * plain.figures["bootNodeHours"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"trace": "v100-clam"},
            "params: trace: 'v100-clam' is unknown; use one of .* did you mean 'v100-calm'",
        ),
        ({"nodes": 2, "zones": 3}, "zones: must be at most nodes, 2"),
        ({"nodes": 0}, "params.nodes: "),
    ],
)
def test_bad_parameters_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSimulation, match=message):
        run("spot", params, 1)


def test_the_perturbation_needs_the_model() -> None:
    with pytest.raises(
        InvalidSimulation, match="g4dn-us-east-1c is a recorded trace, so use one of v100-calm"
    ):
        run(
            "spot",
            {"trace": "g4dn-us-east-1c"},
            1,
            Perturbation(kind=PerturbationKind.SPOT_TRACE, magnitude=1.0),
        )


def test_a_recorded_trace_repeats_and_grows_to_the_nodes() -> None:
    found = run("spot", {"trace": "g4dn-us-east-1c", "nodes": 120, "hours": 49, "policy": "SpotOnly"}, 1)
    assert found.figures["losses"] == pytest.approx(2 * 900, abs=100)


def test_nodes_on_both_sides_of_a_joint_stay() -> None:
    joined = join(from_counts([(0.0, 2)], 10.0), steady(3, 5.0))
    assert list(joined.changes())[1:] == [(10.0, ("spot-2",), (), 0.0)]
    assert joined.seconds == 15.0
    assert list(join(steady(2, 5.0), SpotTrace(5.0, 2, ())).changes())[1].vanished == ("spot-0", "spot-1")
