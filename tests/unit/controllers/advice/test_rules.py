"""Tests of the rules of advice: each fires on its violation with the right field, and is silent after the
remedy, on a clean job, and where it cannot be judged.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.controllers.advice.cases import (
    CASES,
    CONTAINER,
    ZONE,
    Case,
    engine,
    follower,
    own,
    subject_of,
)

from convoy_controllers.advice.arrays import shape
from convoy_controllers.advice.gravity import claim_zones
from convoy_controllers.advice.images import tag
from convoy_controllers.advice.registry import RULES, denied, findings
from convoy_controllers.advice.subject import Surroundings
from convoy_crds.advice import Severity

DOCS = Path(__file__).parents[4] / "docs" / "advice.md"


def ids(body: dict[str, Any], around: Surroundings | None = None, kind: str = "TrainingJob") -> list[str]:
    """Return the rules that a job violates."""
    return [one.rule for one in findings(subject_of(body, around, kind))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule} {case.path}")
def test_a_violation_is_found_at_its_field_and_gone_after_the_remedy(case: Case) -> None:
    found = findings(case.subject())
    assert [(one.rule, one.path) for one in found] == [(case.rule, case.path)]
    assert all(one.message and one.remedy for one in found)
    assert findings(case.subject(remedied=True)) == []


def test_every_rule_has_a_violation() -> None:
    assert {case.rule for case in CASES} == {rule.id for rule in RULES} == {f"T{n:02}" for n in range(1, 13)}


def test_clean_jobs_violate_no_rule() -> None:
    assert ids(own()) == ids(engine()) == ids(follower(), kind="ServingJob") == []


def test_ignored_rules_find_nothing() -> None:
    subject = subject_of(own(image="train:latest", resources={}))
    assert [one.rule for one in findings(subject)] == ["T01", "T02"]
    assert [one.rule for one in findings(subject, ["T01"])] == ["T02"]


def test_only_static_warnings_deny() -> None:
    idle = {"facts": {"processors": {"requested": 32.0, "used": 1.0, "seconds": 600}}}
    found = denied(subject_of(own(idle, image="train:1.4", command=["python", "train.py"], resources={})))
    assert [one.rule for one in found] == ["T02"], "T01 and T05 are hints, and T10 is a fact of the run"
    assert denied(subject_of(own(resources={})), ["T02"]) == []


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("train", ""),
        ("train:1", "1"),
        ("host:5000/team/train", ""),
        ("host:5000/team/train:v2", "v2"),
        ("host/train@sha256:00", None),
        ("host/train:v2@sha256:00", None),
    ],
)
def test_the_tag_of_an_image(image: str, expected: str | None) -> None:
    assert tag(image) == expected


@pytest.mark.parametrize(
    ("image", "severity"),
    [("train:latest", Severity.WARNING), ("host:5000/train", Severity.WARNING), ("train:1.4", Severity.INFO)],
)
def test_a_moving_tag_weighs_more(image: str, severity: Severity) -> None:
    (found,) = findings(subject_of(own(image=image)))
    assert found.severity is severity


def test_images_of_sidecars_and_init_containers_are_checked_and_local_ones_are_not() -> None:
    pod = {"initContainers": [{"name": "fetch", "image": "fetch:latest"}]}
    (found,) = findings(subject_of(own(pod=pod)))
    assert found.path == "spec.roles[0].template.spec.initContainers[0].image"
    assert ids(own(image="convoy/torch:dev")) == []


def test_limits_and_requests_of_the_whole_pod_count() -> None:
    whole = {"resources": {"requests": {"cpu": 4, "memory": "8Gi"}}}
    assert (
        ids(own(resources={"limits": {"cpu": 4, "memory": "8Gi"}})) == ids(own(pod=whole, resources={})) == []
    )


def test_the_pod_of_an_engine_is_not_judged_without_resources_of_its_own() -> None:
    env = [{"name": "worker", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}]
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": env}}}
    assert ids(engine(roles=[role])) == []
    env[0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}  # type: ignore[assignment]
    assert ids(engine(roles=[role])) == ["T02", "T02"]


@pytest.mark.parametrize(
    "pod",
    [
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "h100"}]},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}
                                ]
                            }
                        ]
                    }
                }
            }
        },
    ],
)
def test_a_type_of_device_may_be_named_by_affinity_or_claim(pod: dict[str, Any]) -> None:
    limits = {"limits": {"nvidia.com/gpu": 8, "cpu": 64, "memory": "512Gi"}}
    assert ids(own(pod=pod, resources=limits)) == []


def test_four_near_identical_jobs_are_not_an_array() -> None:
    assert ids(engine(), Surroundings(similar=("b", "c", "d"))) == []


def test_jobs_of_one_shape_differ_only_in_the_values_of_their_program() -> None:
    def spec(rate: float, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = engine(engine={"name": "gpt", "params": {"rate": rate}}, **more)["spec"]
        return found

    assert shape(spec(0.1)) == shape(spec(0.2)) == shape(spec(0.3, suspend=True))
    assert shape(spec(0.1)) != shape(spec(0.1, roles=[{"name": "worker", "replicas": 4}]))
    assert shape(spec(0.1)) != shape(engine(engine={"name": "gpt", "params": {"steps": 1}})["spec"])
    assert shape(own(command=["a", "--rate=1"])["spec"]) == shape(own(command=["a", "--rate=2"])["spec"])
    assert shape(own()["spec"]) != shape(own(image="other")["spec"])


def test_an_interval_within_a_factor_of_three_is_fine_and_an_unmeasured_one_unknown() -> None:
    tiers = {"tiers": {"local": {}}}
    measured = {"facts": {"saveSeconds": 2.0}}
    # The best interval is sqrt(2 * 2 s * 24 h), about 588 s.
    assert ids(engine(measured, checkpoint={"interval": "28m", **tiers})) == []
    assert ids(engine(measured, checkpoint={"interval": "30m", **tiers})) == ["T04"]
    assert ids(engine(measured, checkpoint={"interval": "200s", **tiers})) == []
    assert ids(engine(measured, checkpoint={"interval": "190s", **tiers})) == ["T04"]
    assert ids(engine(checkpoint={"interval": "10h", **tiers})) == []
    faults = measured | {"restarts": {"total": 99}}
    assert ids(engine(faults, checkpoint={"interval": "28m", **tiers})) == ["T04"], "faults shorten it"


@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": "SEED", "value": "1"}], "command": ["python", "train.py"]},
        {"command": ["python", "train.py", "--random-seed", "3"]},
        {"command": ["sh", "-c", "python train.py trainer.seed=3"]},
    ],
)
def test_a_seed_may_be_a_variable_or_an_argument(container: dict[str, Any]) -> None:
    assert ids(own(**container)) == []


def test_an_engine_without_a_known_seed_is_not_judged() -> None:
    unknown = engine(engine={"name": "unknown"})
    assert ids(unknown) == []


@pytest.mark.parametrize(
    "address", ["s3://b/data/v3", "hf://org/set@4f2a", "gs://b/2026-11-28/x", "http://b/data"]
)
def test_addresses_with_a_version_are_fine(address: str) -> None:
    assert ids(own(command=["python", "train.py", "--seed=1", f"--data={address}"])) == []


def test_a_claim_without_data_needs_no_version() -> None:
    assert (
        ids(own(pod={"volumes": [{"name": "out", "persistentVolumeClaim": {"claimName": "checkpoints"}}]}))
        == []
    )


def test_training_in_a_serving_job_and_serving_beside_a_group() -> None:
    container = {
        "name": "server",
        "image": "registry.example.com/llm@sha256:00",
        "command": ["torchrun", "train.py"],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
        "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
    }
    service = {
        "metadata": {"name": "llm"},
        "spec": {
            "replicas": 1,
            "roles": [{"name": "server", "template": {"spec": {"containers": [container]}}}],
        },
    }
    (found,) = findings(subject_of(service, kind="ServingJob"))
    assert (found.rule, found.path) == ("T06", f"{CONTAINER}.command")
    container["command"] = ["vllm", "serve"]
    assert findings(subject_of(service, kind="ServingJob")) == []
    helper = {**container, "command": ["vllm", "serve"]}
    del helper["readinessProbe"]
    roles = [
        {"name": "trainer", "replicas": 1},
        {
            "name": "rollout",
            "replicas": 1,
            "membership": "Independent",
            "template": {"spec": {"containers": [helper]}},
        },
    ]
    assert ids(engine(roles=roles)) == [], "an Independent role's pods may serve the group"


def volume(zone: str) -> dict[str, Any]:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"nodeAffinity": {"required": required}},
    }


def test_the_zone_of_a_claim_is_that_of_its_volume_or_its_label() -> None:
    claim: dict[str, Any] = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "team"},
        "spec": {"volumeName": "pv"},
    }
    assert claim_zones([volume("a"), claim]) == {("team", "data"): frozenset({"a"})}
    assert claim_zones([claim]) == {}
    claim["metadata"]["labels"] = {ZONE: "b"}
    assert claim_zones([claim]) == {("team", "data"): frozenset({"b"})}


def test_data_far_from_where_the_ranks_run() -> None:
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "set-v2"}}]}
    ranks = [{"name": "a", "ranks": 1}, {"name": "b", "ranks": 1}]
    placed = {"placement": {"keys": [{"key": ZONE, "domains": 2, "ranks": ranks}]}}
    around = Surroundings(claim_zones={"set-v2": frozenset({"a"})})
    assert ids(own(placed, pod=volumes), around) == ["T07"]
    assert ids(own(placed, pod=volumes)) == [], "the zone of the claim is unknown"
    assert ids(own(pod=volumes), around) == [], "the pods may run anywhere"


@pytest.mark.parametrize(
    ("files", "median", "expected"), [(10_000, 1, []), (10_001, 2**20, []), (10_001, 2**20 - 1, ["T09"])]
)
def test_only_many_small_files_are_too_many(files: int, median: int, expected: list[str]) -> None:
    facts = {"data": [{"path": "/data", "files": files, "medianBytes": median}]}
    assert ids(own({"facts": facts})) == expected


@pytest.mark.parametrize(
    ("requested", "used", "seconds", "expected"),
    [(10, 2.9, 60, ["T10"]), (10, 3.0, 60, []), (10, 1.0, 59, []), (0.5, 0.0, 600, [])],
)
def test_idle_processors(requested: float, used: float, seconds: int, expected: list[str]) -> None:
    usage = {"requested": requested, "used": used, "seconds": seconds}
    assert ids(own({"facts": {"processors": usage}})) == expected


def test_a_digest_that_the_nodes_reported_completes_the_record() -> None:
    image = {"role": "worker", "container": "worker", "image": "train:1.4", "digest": "train@sha256:00"}
    ended = {"phase": "Succeeded", "progress": {"step": 1, "loss": 1.5}}
    record = {"generation": 1, "specDigest": "sha256:00", "images": [image]}
    assert ids(own(ended, image="train:1.4")) == ["T01", "T11"]
    assert ids(own(ended | {"provenance": record}, image="train:1.4")) == ["T01"]
    image["digest"] = "sha256:00"
    assert ids(own(ended | {"provenance": record}, image="train:1.4")) == ["T01", "T11"], "it has no registry"


def test_the_runs_of_an_experiment_need_no_seed_and_no_end() -> None:
    run = own(command=["python", "train.py"])
    run["metadata"]["labels"] = {"convoy.dev/experiment": "seeds"}
    assert ids(run) == []


def test_a_running_job_has_no_incomplete_record_and_no_missing_repetition() -> None:
    assert ids(engine({"phase": "Running", "result": {"accuracy": 0.9}})) == []
    assert ids(own({"phase": "Failed"})) == []


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return all places of values in a JSON value: the object or list, and the key."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    inner = [place for _, one in pairs if isinstance(one, dict | list) for place in _places(one)]
    return [(value, key) for key, _ in pairs] + inner


WHOLE = own(
    pod={
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "train-data"}}],
        "nodeSelector": {ZONE: "b"},
        "resourceClaims": [{"name": "gpu"}],
        "initContainers": [{"name": "fetch", "image": "fetch:1"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
                    ]
                }
            }
        },
    },
    env=[{"name": "SEED", "value": "1"}],
    volumeMounts=[{"name": "data", "mountPath": "/data"}],
    resources={"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": 1}},
)


@pytest.mark.parametrize("wrong", [None, "text", 7, True, [], {}, [None], ["text"], {"a": [1]}], ids=repr)
def test_fields_of_any_type_raise_no_error(wrong: Any) -> None:
    judged = 0
    for number in range(len(_places(WHOLE["spec"]))):
        body = deepcopy(WHOLE)
        holder, key = _places(body["spec"])[number]
        holder[key] = wrong
        around = Surroundings(claim_zones={"train-data": frozenset({"a"})})
        try:
            subject = subject_of(body, around)
        except ValidationError:
            continue  # The API server refuses it.
        findings(subject)
        judged += 1
    assert judged > 10
    claim_zones([volume("a") | {"spec": wrong}, volume("a") | {"metadata": wrong}])


def test_the_page_lists_every_rule_with_its_title() -> None:
    page = DOCS.read_text()
    assert [rule.id for rule in RULES if f"| {rule.id} | {rule.title} |" not in page] == []
