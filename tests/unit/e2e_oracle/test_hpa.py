"""Tests of the autoscaler against recorded results of Kubernetes' own, and tests of the comparison itself."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from e2e.cluster import versions
from e2e.cluster.binaries import MODULE as CLUSTER_MODULE
from e2e.cluster.errors import CommandError
from e2e.oracle.hpa import minimise
from e2e.oracle.hpa.comparison import Difference, differences, random_cases
from e2e.oracle.hpa.mutations import MUTATIONS, Mutation
from e2e.oracle.hpa.program import MODULE, Case, Result, results
from e2e.oracle.hpa.record import recorded
from e2e.oracle.hpa.replica_cases import CALLS
from e2e.oracle.hpa.suites import SUITES, Suite, suite_named

from convoy_controllers.autoscale.conditions import ConditionReason
from convoy_controllers.autoscale.failure import FailureKind

NAMES = [suite.name for suite in SUITES]
OF_ZERO = {ConditionReason.SCALED_TO_ZERO, ConditionReason.NOT_SCALED_TO_ZERO}
"""Reasons that Kubernetes uses only with the feature gate HPAScaleToZero."""


@cache
def cases_of(name: str) -> list[tuple[Case, Result]]:
    return recorded(suite_named(name))


def first_difference(name: str) -> Difference | None:
    """Return the first recorded case in which Convoy decides differently."""
    suite = suite_named(name)
    for case, result in cases_of(name):
        if (convoy := suite.convoy(case)) != result:
            return Difference(case, convoy, result)
    return None


@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_those_of_kubernetes(name: str) -> None:
    assert first_difference(name) is None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_fault_on_purpose_is_found(mutation: Mutation) -> None:
    with mutation.applied():
        assert first_difference(mutation.suite) is not None


def test_the_recorded_calls_have_all_kinds_of_results() -> None:
    cases = cases_of("replicas")
    assert {case["call"] for case, _ in cases} == set(CALLS)
    assert {result["error"] for _, result in cases if "error" in result} == set(FailureKind)
    replicas = [result["replicas"] - case["specReplicas"] for case, result in cases if "error" not in result]
    assert min(replicas) < 0 < max(replicas) and 0 in replicas


def test_the_recorded_scenarios_have_all_reasons() -> None:
    decisions = [one for _, result in cases_of("controller") for one in result]
    reasons = {reason for one in decisions for _, reason in one.get("conditions", {}).values()}
    assert reasons == set(ConditionReason) - OF_ZERO
    assert {one["reason"] for one in decisions if "reason" in one} == {
        "AboveTarget", "BelowTarget", "AboveMaxReplicas", "BelowMinReplicas", "Stabilized",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_random_cases_depend_only_on_the_number_of_the_batch(name: str) -> None:
    suite = suite_named(name)
    first = random_cases(suite, 1, 5)
    assert first == random_cases(suite, 1, 5)
    assert first != random_cases(suite, 2, 5)


def test_an_exception_of_the_autoscaler_is_a_difference() -> None:
    case, result = cases_of("replicas")[0]
    broken = {**case, "target": None}
    (found,) = differences(suite_named("replicas"), [broken], [result])
    assert "raised" in found.convoy


@pytest.mark.parametrize("name", NAMES)
def test_smaller_cases_lose_a_part_and_stay_valid(name: str) -> None:
    suite = suite_named(name)
    short = [case for case, _ in cases_of(name)[:300] if len(case.get("steps", ())) <= 4]
    case = max(short, key=lambda one: len(json.dumps(one)))
    candidates = list(minimise.smaller(case))
    assert len(candidates) > 10
    for candidate in candidates:
        assert len(json.dumps(candidate)) < len(json.dumps(case))
        suite.convoy(candidate)


def test_a_differing_case_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake_results(_: Path, __: str, cases: list[Case]) -> list[Result]:
        return [sum("failWrites" in step for step in case["steps"]) > 1 for case in cases]

    monkeypatch.setattr(minimise, "results", fake_results)
    suite = Suite("fake", lambda _: {}, lambda _: False, lambda _, theirs: theirs, lambda _: 1)
    steps = [{"spec": {"behavior": {}}, "failWrites": True}, {}, {"failReads": True}, {"failWrites": True}]
    found = minimise.minimised(suite, Path(), Difference({"steps": steps}, False, True))
    assert found.case == {"steps": [{"spec": {}, "failWrites": True}, {"failWrites": True}]}
    assert found.kubernetes is True


def test_a_failure_of_the_program_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "hpa"
    program.write_text("#!/bin/sh\necho 'line 1: no call' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(CommandError, match=r"hpa replicas.*exit code 1(?s:.*)line 1: no call"):
        results(program, "replicas", [{}])


def requirements(module: Path) -> dict[str, str]:
    """Return the versions in a go.mod file, by name of the module."""
    return dict(re.findall(r"^\s*(?:\S+ => )?(k8s\.io/\S+) (v\S+)", module.read_text(), re.MULTILINE))


def test_the_oracle_is_the_release_of_the_cluster() -> None:
    release = versions.RELEASES[versions.DEFAULT_MINOR]
    ours, cluster = requirements(MODULE / "go.mod"), requirements(CLUSTER_MODULE / f"{release.module}.mod")
    assert ours["k8s.io/kubernetes"] == f"v{release.kubernetes}"
    assert {name: cluster[name] for name in ours if name in cluster} == {
        name: version for name, version in ours.items() if name in cluster
    }
