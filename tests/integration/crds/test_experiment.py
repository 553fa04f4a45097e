"""Tests of Experiment's rules at a real API server: bad input, and edits of the plan."""

from __future__ import annotations

import json
import secrets
import urllib.error
from typing import Any

import pytest
from tests.integration.conftest import ControlPlane
from tests.unit.crds.experiments import arm, spec

MERGE = "application/merge-patch+json"
LAG: dict[str, Any] = {"name": "lag", "kind": "ObservationLag", "magnitudes": [15, 60]}
PREDICTION: dict[str, Any] = spec()["predictions"][0]
OUTCOME: dict[str, Any] = spec()["outcomes"][0]
FAST, HPA = arm("fast", "Candidate"), arm("hpa", "Comparator")
JOB = {"template": {"spec": {"roles": []}}}
TUNED = {"trials": 5, "search": [{"path": "target", "min": 0.1, "max": 0.9}]}
CONTROL = {"name": "aa", "type": "Simulation", "role": "NegativeControl", "controlOf": "hpa"}
SWEEP = {"parameters": [{"name": "n", "path": "n", "values": [1, {"a": 2}]}]}


def collection(namespace: str) -> str:
    return f"/apis/convoy.dev/v1alpha1/namespaces/{namespace}/experiments"


def without(body: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in fields}


def body(name: str = "", **more: Any) -> dict[str, Any]:
    """Return an Experiment. A field with the value None is left out."""
    fields = {field: value for field, value in spec(**more).items() if value is not None}
    metadata = {"name": name or f"x-{secrets.token_hex(4)}"}
    return {"apiVersion": "convoy.dev/v1alpha1", "kind": "Experiment", "metadata": metadata, "spec": fields}


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane) -> str:
    return control_plane.namespace("experiments")


def refusal(control_plane: ControlPlane, *request: Any) -> str:
    """Send a request that the API server must refuse. Return its message."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        control_plane.request(*request)
    assert caught.value.code == 422
    return str(json.loads(caught.value.read())["message"])


ACCEPTED: dict[str, dict[str, Any]] = {
    "perturbations": {"perturbations": [LAG], "predictions": [{**PREDICTION, "perturbation": "lag"}]},
    "degradation": {
        "perturbations": [LAG],
        "predictions": [{**PREDICTION, "perturbation": "lag", "contrast": "Degradation"}],
    },
    "controls": {"arms": [FAST, HPA, CONTROL]},
    "health": {"analysis": {"health": [{"arm": "hpa", "outcome": "late", "max": 20}]}},
    "tuning": {
        "arms": [{**FAST, "tuning": TUNED}, {**HPA, "tuning": TUNED}],
        "tuning": {"outcome": "late"},
    },
    "sweep": {"arms": [FAST], "predictions": None, "sweep": SWEEP, "blocks": 1},
    "the longest name": {"name": "n" * 30},
}


@pytest.mark.parametrize("more", ACCEPTED.values(), ids=ACCEPTED)
def test_right_input_is_accepted(control_plane: ControlPlane, namespace: str, more: dict[str, Any]) -> None:
    control_plane.request("POST", collection(namespace), body(**more))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unregistered perturbation": (
        {"predictions": [{**PREDICTION, "perturbation": "noise"}]},
        "a prediction's perturbation must be registered in spec.perturbations",
    ),
    "an unknown kind": (
        {"perturbations": [{**LAG, "kind": "Gremlins"}]},
        'spec.perturbations[0].kind: Unsupported value: "Gremlins"',
    ),
    "a magnitude that is too large": (
        {"perturbations": [{**LAG, "magnitudes": [15, 3601]}]},
        "spec.perturbations[0].magnitudes: Invalid value",
    ),
    "the same magnitude twice": (
        {"perturbations": [{**LAG, "magnitudes": [15, 60, 15.0]}]},
        "name it only once",
    ),
    "a health limit of an unknown arm": (
        {"analysis": {"health": [{"arm": "hpaa", "outcome": "late", "max": 20}]}},
        "a limit in analysis.health needs the name of an arm",
    ),
    "a health limit of an unknown outcome": (
        {"analysis": {"health": [{"arm": "hpa", "outcome": "pinned", "max": 20}]}},
        "a limit in analysis.health needs the name of an arm",
    ),
    "half a kill": (
        {"perturbations": [{**LAG, "kind": "KillRank", "magnitudes": [0.5]}]},
        "a magnitude is outside the range of its kind",
    ),
    "unequal budgets": (
        {
            "arms": [{**FAST, "tuning": TUNED}, {**HPA, "tuning": {**TUNED, "trials": 6}}],
            "tuning": {"outcome": "late"},
        },
        "candidates and comparators must have the same tuning budget",
    ),
    "a budget for one arm only": (
        {"arms": [{**FAST, "tuning": TUNED}, HPA], "tuning": {"outcome": "late"}},
        "candidates and comparators must have the same tuning budget",
    ),
    "tuning without its outcome": (
        {"arms": [{**FAST, "tuning": TUNED}, {**HPA, "tuning": TUNED}]},
        "tuned arms need tuning.outcome",
    ),
    "one block": ({"blocks": 1}, "one block has no spread"),
    "no comparator": (
        {"arms": [FAST, arm("hpa", "Naive")]},
        "an experiment needs an arm with role Comparator",
    ),
    "no candidate": (
        {"arms": [arm("fast", "Naive"), HPA]},
        "an experiment needs an arm with role Candidate",
    ),
    "no prediction": ({"predictions": None}, "an experiment needs at least one prediction"),
    "a prediction without a direction": (
        {"predictions": [without(PREDICTION, "direction")]},
        "spec.predictions[0].direction: Required value",
    ),
    "a prediction about an unknown outcome": (
        {"predictions": [{**PREDICTION, "outcome": "early"}]},
        "a prediction's outcome must be the name of an outcome",
    ),
    "a prediction about a fact": (
        {"outcomes": [{**OUTCOME, "better": "Neither"}]},
        "a prediction's outcome must be the name of an outcome whose better is Higher or Lower",
    ),
    "a prediction about an unknown arm": (
        {"predictions": [{**PREDICTION, "candidate": "slow"}]},
        "a prediction's candidate must be the name of an arm",
    ),
    "a comparison of an arm with itself": (
        {"predictions": [{**PREDICTION, "candidate": "hpa"}]},
        "candidate and comparator must be two different arms",
    ),
    "degradation without a perturbation": (
        {"predictions": [{**PREDICTION, "contrast": "Degradation"}]},
        "contrast Degradation needs a perturbation",
    ),
    "no condition": (
        {"unperturbed": False, "predictions": [PREDICTION]},
        "there is no condition",
    ),
    "two sources": (
        {"outcomes": [{**OUTCOME, "source": {"metric": "a", "status": "b"}}]},
        "set exactly one of status, metric and load",
    ),
    "a load without a server": (
        {"outcomes": [{**OUTCOME, "source": {"load": "p99Ms"}}]},
        "an outcome from load needs arms of type ServingJob",
    ),
    "a simulation without simulation": (
        {"arms": [without(FAST, "simulation"), HPA]},
        "an arm of type Simulation needs simulation",
    ),
    "a job without a template": (
        {"arms": [{**without(FAST, "simulation"), "type": "TrainingJob"}, HPA]},
        "an arm of type TrainingJob or ServingJob needs template",
    ),
    "a server without a load": (
        {"arms": [{**without(FAST, "simulation"), "type": "ServingJob", **JOB}, HPA]},
        "an arm of type ServingJob needs load",
    ),
    "a control of nothing": (
        {"arms": [FAST, HPA, without(CONTROL, "controlOf")]},
        "controlOf is needed for a NegativeControl or PositiveControl",
    ),
    "a control with settings of its own": (
        {"arms": [FAST, HPA, {**CONTROL, "simulation": {"simulator": "a"}}]},
        "a NegativeControl runs the same as controlOf",
    ),
    "a control of a control": (
        {"arms": [FAST, HPA, CONTROL, {**CONTROL, "name": "bb", "controlOf": "aa"}]},
        "that is no control itself",
    ),
    "tuning of a job": (
        {
            "arms": [
                {**without(FAST, "simulation"), "type": "TrainingJob", **JOB, "tuning": TUNED},
                {**HPA, "tuning": TUNED},
            ],
            "tuning": {"outcome": "late"},
        },
        "tuning.search is only for arms of type Simulation",
    ),
    "a range without an end": (
        {
            "arms": [
                {**one, "tuning": {"trials": 5, "search": [{"path": "target", "min": 1}]}}
                for one in (FAST, HPA)
            ],
            "tuning": {"outcome": "late"},
        },
        "a Double or Int parameter needs min and max",
    ),
    "a sweep with predictions": (
        {"arms": [FAST], "sweep": SWEEP},
        "a sweep has one arm, and no predictions",
    ),
    "too many figures": (
        {"outcomes": [{**OUTCOME, "name": name} for name in ("late", *"abcdefgh")]},
        "arms x outcomes must be at most 16",
    ),
    "too many blocks": (
        {"perturbations": [LAG], "blocks": 67},
        "conditions (unperturbed and each magnitude) x blocks must be at most 200",
    ),
    "two arms of one name": ({"arms": [FAST, HPA, HPA]}, 'Duplicate value: {"name":"hpa"}'),
    "a long name": ({"name": "n" * 31}, "the name may have at most 30 characters"),
}


@pytest.mark.parametrize(("more", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_with_its_message(
    control_plane: ControlPlane, namespace: str, more: dict[str, Any], message: str
) -> None:
    found = refusal(control_plane, "POST", collection(namespace), body(**more))
    assert message in found
    assert "spec" in found or "name" in found


EDITS: dict[str, dict[str, Any]] = {
    "blocks": {"blocks": 4},
    "seed": {"seed": 1},
    "parallelism": {"parallelism": 2},
    "a deadline": {"activeDeadlineSeconds": 60},
    "a margin": {"predictions": [{**PREDICTION, "margin": 1}]},
    "a direction": {"predictions": [{**PREDICTION, "direction": "Worse"}]},
    "no predictions": {"predictions": None},
    "an arm": {"arms": [FAST, HPA, arm("third", "Naive")]},
    "the order of arms": {"arms": [HPA, FAST]},
    "a parameter": {"arms": [arm("fast", "Candidate", simulation={"simulator": "x"}), HPA]},
    "a perturbation": {"perturbations": [LAG]},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_of_the_plan_is_refused(
    control_plane: ControlPlane, namespace: str, edit: dict[str, Any]
) -> None:
    made = control_plane.request("POST", collection(namespace), body())
    path = f"{collection(namespace)}/{made['metadata']['name']}"
    message = refusal(control_plane, "PATCH", path, {"spec": edit}, MERGE)
    assert "the plan is registered and never changes, except suspend and stop" in message


def test_suspend_and_stop_may_change(control_plane: ControlPlane, namespace: str) -> None:
    made = control_plane.request("POST", collection(namespace), body())
    path = f"{collection(namespace)}/{made['metadata']['name']}"
    for edit in ({"suspend": True}, {"suspend": False, "stop": True}):
        changed = control_plane.request("PATCH", path, {"spec": edit}, MERGE)
        assert edit.items() <= changed["spec"].items()
