"""Tests of the comparison of places by simulated steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controllers.placement.placed_nodes import RACK, PlacedJob, affinity, node_rooms

from convoy_controllers.nodehealth.pacing import JobPace
from convoy_controllers.placement.forecast.candidates import ONE_PER_NODE, PACKED, candidates
from convoy_controllers.placement.forecast.case import MOST_RANKS, Case, case_of
from convoy_controllers.placement.forecast.links import UnknownLink
from convoy_controllers.placement.forecast.ranking import Forecast, rank
from convoy_controllers.placement.packing import NoRoom, PodClass, Room, choose
from convoy_controllers.placement.rooms import NodeRoom
from convoy_controllers.placement.topology import topology
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import NodeView
from convoy_crds.placement import LABEL_HOST_RATE, LABEL_UPLINK_RATE, Advise, PlacementAdvice, Step

STEP = Step(backward_milliseconds=10, gradient_bytes=100_000_000)


def labels(rack: str, host: str = "100", uplink: str = "400") -> dict[str, str]:
    return {RACK: rack, LABEL_HOST_RATE: host, LABEL_UPLINK_RATE: uplink}


def case(nodes: Mapping[str, Mapping[str, str]], ranks: list[str], step: Step = STEP) -> Case:
    return case_of(step, ranks, topology([RACK], nodes), nodes)


# Cases


def test_equal_places_are_one_case() -> None:
    nodes = {f"n{number}": labels("ab"[number // 2]) for number in range(4)}
    assert case(nodes, ["n0", "n1"]) == case(nodes, ["n2", "n3"])
    assert case(nodes, ["n0", "n1"]) != case(nodes, ["n1", "n2"])
    assert case(nodes, ["n0", "n0"]).hosts == case(nodes, ["n0"]).hosts


def test_a_case_survives_its_text() -> None:
    nodes = {"n0": labels("a"), "n1": labels("b", uplink="12.5")}
    found = case(nodes, ["n0", "n1", "n1"])
    assert Case.load(found.dump()) == found and hash(Case.load(found.dump())) == hash(found)


def test_a_slow_host_slows_the_step_down() -> None:
    nodes = {"n0": labels("a"), "n1": labels("a"), "n2": labels("a", host="1")}
    fast, slow = case(nodes, ["n0", "n1"]).predict(), case(nodes, ["n0", "n2"]).predict()
    assert slow.seconds > 10 * fast.seconds
    assert slow.bottleneck is not None and "node-1" in slow.bottleneck.name


def test_ranks_of_one_node_do_not_use_its_link() -> None:
    nodes = {"n0": labels("a", host="1")}
    assert case(nodes, ["n0", "n0"]).predict().seconds < 0.03


@pytest.mark.parametrize("rate", [None, "fast", "0", "-1", "inf", "nan"])
def test_a_link_without_a_rate_is_named(rate: str | None) -> None:
    nodes = {
        "n0": labels("a"),
        "n1": {key: one for key, one in labels("a").items() if key != LABEL_HOST_RATE},
    }
    if rate is not None:
        nodes["n1"][LABEL_HOST_RATE] = rate
    with pytest.raises(UnknownLink, match=rf"node n1.*{LABEL_HOST_RATE}"):
        case(nodes, ["n0", "n1"])


def test_uplinks_matter_only_to_jobs_in_several_racks() -> None:
    nodes = {"n0": labels("a"), "n1": labels("a"), "n2": labels("b")}
    for one in nodes.values():
        del one[LABEL_UPLINK_RATE]
    case(nodes, ["n0", "n1"])
    with pytest.raises(UnknownLink, match=LABEL_UPLINK_RATE):
        case(nodes, ["n1", "n2"])


# Candidates


def rooms(*counts: int, cores: int = 1) -> list[Room]:
    return [
        Room(f"n{rack}-{number}", (f"r{rack}",), {"cpu": 1000 * cores}, frozenset({"w"}))
        for rack, count in enumerate(counts)
        for number in range(count)
    ]


def listed(found: list[Room], count: int, *, required: bool = False) -> dict[str, list[str]]:
    pods = [PodClass("w", {"cpu": 1000}, count, count)]
    packed = choose(pods, found, 1, required=required)
    if isinstance(packed, NoRoom):
        return {}
    return {
        one.name: sorted(one.choice.nodes["w"])
        for one in candidates(packed, pods, found, 1, required=required)
    }


def test_each_rack_is_a_candidate_and_packing_comes_first() -> None:
    found = listed(rooms(2, 3), 2)
    assert list(found) == [PACKED, "r1 first"]
    assert found[PACKED] == ["n0-0", "n0-1"] and found["r1 first"] == ["n1-0", "n1-1"]


def test_a_job_that_no_rack_holds_may_fill_either_first() -> None:
    found = listed(rooms(3, 2, 2), 4)
    assert {name: [node[:2] for node in nodes] for name, nodes in found.items()} == {
        PACKED: ["n0", "n0", "n0", "n1"],
        "r1 first": ["n0", "n0", "n1", "n1"],
        "r2 first": ["n0", "n0", "n2", "n2"],
    }
    assert listed(rooms(3, 2), 4, required=True) == {}


def test_pods_may_be_spread_over_nodes() -> None:
    found = listed(rooms(4, cores=4), 4)
    assert found[PACKED] == ["n0-0"] * 4
    assert found[ONE_PER_NODE] == ["n0-0", "n0-1", "n0-2", "n0-3"]


# Ranking


def test_another_place_must_be_faster_by_more_than_a_hundredth() -> None:
    nodes = {f"n{number}": labels("a", host=str(10 + number)) for number in range(4)}
    cases = [case(nodes, [f"n{number}", f"n{(number + 1) % 4}"]) for number in range(3)]
    forecasts = dict(zip(cases, (Forecast(100.0), Forecast(99.5), Forecast(99.4)), strict=True))
    names = ["packed", "b", "c"]
    assert rank(names, cases, forecasts).best == 0
    forecasts[cases[2]] = Forecast(98.0)
    found = rank(names, cases, forecasts)
    assert found.best == 2 and [one.name for one in found.places] == ["c", "b", "packed"]
    del forecasts[cases[1]]
    assert rank(names, cases, forecasts).missing == (cases[1],)
    failed = dict.fromkeys(cases, Forecast(failure="late"))
    assert rank(names, cases, failed).failure == "late" and rank(names, cases, failed).best is None


# TrainingJobs


class AdvisedJob(PlacedJob):
    """A job of two pods that asks for advice, on two racks. The hosts of r1 have faster links."""

    def __init__(self, *, rates: bool = True, replicas: int = 2, **placement: Any) -> None:
        found = node_rooms(racks=2, per_rack=3)
        for name, room in found.items():
            host = {"r0": "1", "r1": "100"}[room.node.labels[RACK]]
            extra = labels(room.node.labels[RACK], host) if rates else {}
            found[name] = NodeRoom(replace(room.node, labels={**room.node.labels, **extra}), room.free)
        step = {"backwardMilliseconds": 10, "gradientBytes": 100_000_000}
        super().__init__(found, advise="Simulate", step=step, **placement)
        self.labels = {name: room.node.labels for name, room in found.items()}
        self.forecasts: dict[Case, Forecast] = {}
        self.compared: tuple[tuple[str, Case], ...] = ()
        self.pace: JobPace | None = None

    def observed(self) -> Observed:
        found = super().observed()
        on = dict(zip(sorted(found.nodes), ("n0-0", "n0-1"), strict=False))
        nodes = {name: NodeView(name, labels=self.labels[on[name]]) for name in on}
        return replace(found, nodes=nodes, forecasts=self.forecasts, compared=self.compared, pace=self.pace)

    def step(self, effects: int | None = None) -> Plan:
        made = super().step(effects)
        self.compared = made.memory or self.compared  # type: ignore[assignment]
        return made

    def simulate(self, made: Plan) -> None:
        """Simulate the cases of a plan, as the operator does."""
        for one in made.simulate:
            self.forecasts[one] = Forecast(one.predict().seconds * 1e3)

    @property
    def advice(self) -> PlacementAdvice:
        placed = self.job.status.placement
        assert placed is not None and placed.advice is not None
        return placed.advice


def rack_of(manifest: Mapping[str, Any]) -> str:
    terms = affinity(manifest)["preferredDuringSchedulingIgnoredDuringExecution"]
    found = [
        one["values"][0]
        for term in terms
        for one in term["preference"].get("matchExpressions", ())
        if one["key"] == RACK
    ]
    return str(found[0])


def test_pods_do_not_wait_for_the_simulation() -> None:
    job = AdvisedJob()
    made = job.step()
    assert len(made.manifests) == 2 and {rack_of(one) for one in made.manifests} == {"r0"}
    assert len(made.simulate) == 2 and [name for name, _ in job.compared] == [PACKED, "r1 first"]
    job.simulate(made)
    job.step()
    assert [one.name for one in job.advice.places] == ["r1 first", PACKED]
    assert job.advice.chosen == PACKED and job.events.count("PlaceAdvised") == 1
    job.settle()
    assert job.events.count("PlaceAdvised") == 1


def test_a_start_after_the_simulation_prefers_the_fastest_place() -> None:
    job = AdvisedJob()
    job.simulate(AdvisedJob().step())
    made = job.step()
    assert {rack_of(one) for one in made.manifests} == {"r1"} and not made.simulate
    assert job.advice.chosen == "r1 first" and "PlaceAdvised" not in job.events


def test_a_changed_step_is_ranked_again_at_the_next_start() -> None:
    job = AdvisedJob()
    for _ in range(8):
        job.simulate(job.step())
    before = job.advice.places
    job.job.spec.suspend = True
    job.settle()
    job.job.spec.suspend = False
    job.job.spec.placement.step = Step(backward_milliseconds=10, gradient_bytes=10_000_000)
    made = next(one for one in (job.step() for _ in range(8)) if one.manifests)
    assert made.simulate and not job.advice.places and not job.advice.chosen
    job.simulate(made)
    job.step()
    assert [one.name for one in job.advice.places] == ["r1 first", PACKED]
    assert job.advice.places[1].step_ms < before[1].step_ms / 5


def test_the_prediction_for_the_own_nodes_stands_beside_the_measured_step() -> None:
    job = AdvisedJob()
    for _ in range(8):
        job.simulate(job.step())
    assert job.job.status.formed and job.advice.measured_ms is None
    predicted = job.advice.predicted_ms
    assert predicted is not None and predicted > 800
    job.pace = JobPace("uid", job.job.status.incarnation, predicted / 1e3 * 2, 0.0, 5, 2, frozenset())
    job.step()
    assert job.advice.measured_ms == pytest.approx(2 * predicted, rel=1e-3)
    assert job.advice.error_percent == -50.0
    job.pace = replace(job.pace, incarnation=99)
    before = job.advice
    job.step()
    assert job.advice == before


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (AdvisedJob(rates=False), f"has no label {LABEL_HOST_RATE}"),
        (AdvisedJob(gang="None"), ""),
    ],
    ids=["rates", "none"],
)
def test_what_cannot_be_compared_is_skipped_with_the_reason(job: AdvisedJob, why: str) -> None:
    made = job.step()
    assert len(made.manifests) == 2
    assert why in (job.advice.skipped if why else "")
    assert ("AdviceSkipped" in job.events) is bool(why)
    job.settle()
    assert job.events.count("AdviceSkipped") == bool(why)


def test_a_failed_simulation_is_skipped_with_the_reason() -> None:
    job = AdvisedJob()
    made = job.step()
    job.forecasts = dict.fromkeys(made.simulate, Forecast(failure="the simulation has not ended after 10 s"))
    job.step()
    assert job.advice.skipped == "the simulation has not ended after 10 s" and not job.advice.places


def test_a_job_of_many_ranks_is_skipped() -> None:
    found = node_rooms(racks=1, per_rack=1, free=MOST_RANKS + 1)
    job = PlacedJob(found, advise="Simulate", step={"gradientBytes": 1})
    job.job.spec.roles[0].replicas = MOST_RANKS + 1
    job.step()
    placed = job.job.status.placement
    assert placed is not None and placed.advice is not None
    assert placed.advice.skipped.startswith(f"the job has {MOST_RANKS + 1} ranks")


def test_the_advice_goes_with_its_setting() -> None:
    job = AdvisedJob()
    job.simulate(job.step())
    job.step()
    job.job.spec.placement.advise = Advise.NONE
    job.settle()
    placed = job.job.status.placement
    assert placed is None or placed.advice is None
