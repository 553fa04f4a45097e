"""Tests of the engine load: its parameters, its schedule and the figures of its result."""

from __future__ import annotations

import inspect
import itertools
import math
import pickle
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from convoy.cli.load import SECONDS, load
from convoy.load.arrivals import ScheduleError
from convoy.load.outcome import Kind, Outcome
from convoy.load.tally import Tally
from convoy_crds.experiment_plan import FigureName
from convoy_workloads.engines.load import schedule as schedules
from convoy_workloads.engines.load.figures import figures, summary
from convoy_workloads.engines.load.params import Params
from convoy_workloads.engines.load.schedule import expected_requests, schedule
from convoy_workloads.runtime.result import encode_result

URL = "http://lm:8080"
SHIFT = {"kind": "WorkloadShift", "magnitude": 3.0, "start": 10.0, "duration": 20.0}


def params(**given: Any) -> Params:
    return Params.model_validate({"url": URL, **given})


def times(**given: Any) -> list[float]:
    return list(schedule(params(**given))())


def test_parameters_have_the_defaults_of_the_command() -> None:
    options = {name: one.default for name, one in inspect.signature(load).parameters.items()}
    options["arrivals"] = options.pop("kind")
    own = {name: field.default for name, field in Params.model_fields.items()}
    shared = (own.keys() & options.keys()) - {"url"}
    assert {name: own[name] for name in shared} == {name: options[name] for name in shared}
    assert set(options) - set(own) == {"trace_unit", "plot", "output"}
    assert set(own) - set(options) == {"perturbation"}
    assert schedules.SECONDS == SECONDS


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"url": "lm:8080"}, "url"),
        ({"rate": 0}, "rate"),
        ({"steps": "5:10", "trace": [0.0]}, "give only one of steps and trace"),
        ({"steps": "5:10", "seconds": 5}, "the steps have their own"),
        ({"path": "/v2"}, "belong together"),
        ({"trace": [1.0, 0.5]}, "not in ascending order"),
        ({"perturbation": {"kind": "KillPod", "magnitude": 1}}, "a load cannot inject KillPod"),
        ({"perturbation": {**SHIFT, "magnitude": 1000}}, "from 0.01 to 100"),
        ({"rates": 5}, "rates"),
    ],
)
def test_invalid_parameters_are_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        params(**given)


def test_a_schedule_depends_only_on_the_parameters() -> None:
    assert times(rate=50) == times(rate=50) != times(rate=50, seed=2)
    assert max(times(rate=50)) < 10.0
    assert times(steps="2:1,4:1", arrivals="constant") == [0.0, 0.5, 1.0, 1.25, 1.5, 1.75]


def counts(found: list[float], *edges: float) -> list[int]:
    return [sum(begin <= at < end for at in found) for begin, end in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    "given", [{"rate": 10, "seconds": 40}, {"steps": "10:15,10:25"}], ids=["rate", "steps"]
)
def test_a_shift_multiplies_the_rate_while_it_acts(given: dict[str, Any]) -> None:
    found = times(**given, arrivals="constant", perturbation=SHIFT)
    assert counts(found, 0, 10, 30, 40) == [100, 600, 100]
    assert found == sorted(found)


def test_a_shift_without_duration_lasts_to_the_end() -> None:
    lasting = {**SHIFT, "duration": None, "magnitude": 0.5}
    found = times(rate=10, seconds=40, arrivals="constant", perturbation=lasting)
    assert counts(found, 0, 10, 40) == [100, 150]


def test_a_shift_repeats_the_arrivals_of_a_trace() -> None:
    trace = [one / 10 for one in range(400)]
    found = times(trace=trace, perturbation=SHIFT)
    assert counts(found, 0, 10, 30, 40) == [100, 600, 100]
    assert found == sorted(found) and set(trace) <= set(found)
    assert counts(times(trace=trace, perturbation={**SHIFT, "start": 1000}), 0, 40) == [400]


@pytest.mark.parametrize("given", [{"rate": 5}, {"trace": [0.0, 11.0, 12.0]}], ids=["rate", "trace"])
def test_other_processes_can_send_a_part_of_the_schedule(given: dict[str, Any]) -> None:
    made = schedule(params(**given, perturbation=SHIFT))
    assert list(pickle.loads(pickle.dumps(made))()) == list(made())


def test_a_rate_that_no_client_can_send_is_refused() -> None:
    with pytest.raises(ScheduleError, match="200000 requests per second are too many"):
        times(rate=2000, perturbation={**SHIFT, "magnitude": 100, "start": 0})


def test_expected_requests_are_those_of_the_plain_load() -> None:
    assert expected_requests(params(steps="10:15,2:25", perturbation=SHIFT), 10, 30) == 50 + 30
    assert expected_requests(params(trace=[0.0, 1.0, 2.0], perturbation=SHIFT), 1, 9) == 2


def tally(*outcomes: Outcome) -> Tally:
    found = Tally()
    for one in outcomes:
        found.add(one)
    return found


def test_figures_are_flat_and_have_names_of_outcomes() -> None:
    found = figures(
        params(),
        tally(
            Outcome(0.1, Kind.OK, first=0.01, total=0.02, events=3),
            Outcome(0.2, Kind.SHED, "status 429"),
            Outcome(0.3, Kind.LOST, "no end within 30 s"),
        ),
        2.0,
    )
    assert (found["scheduled"], found["ok"], found["shed"], found["lost"], found["unsent"]) == (3, 1, 1, 1, 0)
    assert found["errorPercent"] == pytest.approx(200 / 3, abs=1e-4)
    assert found["p99Ms"] == found["maxMs"] == pytest.approx(20, rel=0.002)
    assert found["firstTokenP999Ms"] == pytest.approx(10, rel=0.002)
    assert (found["okPerSecond"], found["eventsPerSecond"], found["seconds"]) == (0.5, 1.5, 2.0)
    assert "clientDelayP50Ms" in found and "achieved" not in found
    named: TypeAdapter[str] = TypeAdapter(FigureName)
    assert all(named.validate_python(name) for name in found)
    assert all(math.isfinite(value) for value in found.values())
    assert len(encode_result(found)) < 1500
    assert summary(found).startswith("3 requests in 2 s: 1 ok, 1 shed, 1 lost; p50 20")


def test_a_load_without_a_response_has_no_latency() -> None:
    found = figures(params(), tally(Outcome(0.0, Kind.LOST, "no connection")), 1.0)
    assert found["ok"] == 0 and not [name for name in found if name.endswith("Ms") and "client" not in name]
    assert summary(found) == "1 requests in 1 s: 1 lost"


def test_the_achieved_factor_is_measured_while_the_shift_acts() -> None:
    shifted = params(rate=2, seconds=40, arrivals="constant", perturbation=SHIFT)
    sent = tally(*(Outcome(at, Kind.OK, total=0.01) for at in schedule(shifted)()))
    assert figures(shifted, sent, 40.0)["achieved"] == 3.0
    unsent = tally(*(Outcome(at, Kind.UNSENT) for at in schedule(shifted)()))
    assert figures(shifted, unsent, 40.0)["achieved"] == 0.0
    short = {**SHIFT, "start": 10.25, "duration": 0.5}
    brief = params(rate=20, seconds=40, arrivals="constant", perturbation=short)
    assert figures(brief, sent, 40.0)["achieved"] == 3.0
    never = params(rate=2, seconds=5, arrivals="constant", perturbation=SHIFT)
    assert "achieved" not in figures(never, tally(Outcome(1.0, Kind.OK, total=0.01)), 5.0)
