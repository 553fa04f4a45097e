"""Tests of `spec.placement` at a real API server: defaults, and what it refuses."""

from __future__ import annotations

import json
import secrets
import urllib.error
from typing import Any

import pytest
from tests.integration.conftest import ControlPlane

ROLES = {
    "TrainingJob": [{"name": "worker", "replicas": 2}],
    "ServingJob": [{"name": "worker", "groupSize": 2, "engine": {"name": "lm"}}],
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "TrainingJob": {
        "gang": "Auto",
        "topologyKeys": [],
        "pack": "Preferred",
        "shrinkFirst": True,
        "advise": "None",
    },
    "ServingJob": {"gang": "Auto", "topologyKeys": [], "pack": "Preferred"},
}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no key": ({"pack": "Required"}, "pack: Required needs topologyKeys: name the node label"),
    "empty keys": ({"pack": "Required", "topologyKeys": []}, "pack: Required needs topologyKeys"),
    "a key twice": ({"topologyKeys": ["rack", "rack"]}, 'Duplicate value: "rack"'),
    "too many keys": ({"topologyKeys": list("abcde")}, "Too many: 5: must have at most 4 items"),
    "no label key": ({"topologyKeys": ["a b"]}, "should match"),
    "unknown backend": ({"gang": "YuniKorn"}, 'Unsupported value: "YuniKorn"'),
    "unknown packing": ({"topologyKeys": ["rack"], "pack": "Tight"}, 'Unsupported value: "Tight"'),
}


STEP = {"backwardMilliseconds": 10, "gradientBytes": 1_000_000}
BAD_ADVICE: dict[str, tuple[dict[str, Any], str]] = {
    "no step": ({"topologyKeys": ["rack"]}, "advise: Simulate needs step"),
    "no key": ({"step": STEP}, "advise: Simulate needs step, the job's training step, and topologyKeys"),
    "no bytes": ({"topologyKeys": ["rack"], "step": {"backwardMilliseconds": 1}}, "gradientBytes: Required"),
    "small bucket": (
        {"topologyKeys": ["rack"], "step": STEP | {"bucketBytes": 1}},
        "bucketBytes: Invalid value: 1",
    ),
    "long step": (
        {"topologyKeys": ["rack"], "step": STEP | {"forwardMilliseconds": 10**8}},
        "forwardMilliseconds: Invalid value",
    ),
}


def create(control_plane: ControlPlane, kind: str, placement: dict[str, Any] | None) -> dict[str, Any]:
    """Let the API server check a job. Return the job with its defaults."""
    spec: dict[str, Any] = {"roles": ROLES[kind]}
    if kind == "TrainingJob":
        spec["engine"] = {"name": "gpt"}
    if placement is not None:
        spec["placement"] = placement
    body = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": f"j-{secrets.token_hex(4)}"},
        "spec": spec,
    }
    path = f"/apis/convoy.dev/v1alpha1/namespaces/default/{kind.lower()}s?dryRun=All&fieldValidation=Strict"
    found: dict[str, Any] = control_plane.request("POST", path, body)
    return found


@pytest.mark.parametrize("kind", ROLES)
def test_a_job_without_placement_has_its_defaults(control_plane: ControlPlane, kind: str) -> None:
    assert create(control_plane, kind, None)["spec"]["placement"] == DEFAULTS[kind]


@pytest.mark.parametrize("kind", ROLES)
def test_required_packing_by_rack_is_accepted(control_plane: ControlPlane, kind: str) -> None:
    wanted = {"topologyKeys": ["topology.kubernetes.io/rack", "zone"], "pack": "Required"}
    assert create(control_plane, kind, wanted)["spec"]["placement"] == DEFAULTS[kind] | wanted


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kind", ROLES)
def test_each_mistake_is_refused(control_plane: ControlPlane, kind: str, case: str) -> None:
    placement, words = BAD[case]
    with pytest.raises(urllib.error.HTTPError) as caught:
        create(control_plane, kind, placement)
    assert caught.value.code == 422
    message = json.loads(caught.value.read())["message"]
    assert words in message and "spec.placement" in message


@pytest.mark.parametrize("case", BAD_ADVICE)
def test_each_mistake_of_advice_is_refused(control_plane: ControlPlane, case: str) -> None:
    placement, words = BAD_ADVICE[case]
    with pytest.raises(urllib.error.HTTPError) as caught:
        create(control_plane, "TrainingJob", {"advise": "Simulate", **placement})
    assert caught.value.code == 422
    assert words in json.loads(caught.value.read())["message"]


def test_a_servingjob_gives_up_no_pods(control_plane: ControlPlane) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        create(control_plane, "ServingJob", {"shrinkFirst": True})
    assert caught.value.code == 400
    assert "spec.placement.shrinkFirst" in json.loads(caught.value.read())["message"]
