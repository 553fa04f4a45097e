"""In-toto statements about the plan and about the result (https://in-toto.io/Statement/v1).

Both statements name the plan by the same digest. So a reader sees which plan stood before the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from convoy_crds.experiment_hash import HASH_PREFIX, canonical, digest
from convoy_crds.experiment_status import Verdict
from convoy_workloads.experiments.result import Result

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PLAN_TYPE = "https://convoy.dev/attestation/experiment-plan/v0.1"
RESULT_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
PLAN_FILE, DATA_FILE, RESULT_FILE = "plan.json", "data.json", "result.json"
CONVOY = "convoy-operator"
LIBRARIES = (CONVOY, "numpy", "scipy")
"""Packages whose releases a statement names."""


def plan_statement(plan: Mapping[str, Any]) -> bytes:
    """Return the statement that registers the plan."""
    spec = plan["spec"]
    predicate = {
        "experiment": plan["name"],
        "predictions": [one["name"] for one in spec.get("predictions") or ()],
        "images": [{"name": one["name"], "uri": one["image"]} for one in plan["engines"]],
    }
    return _statement({PLAN_FILE: digest(plan)}, PLAN_TYPE, predicate)


def result_statement(plan: Mapping[str, Any], data: Mapping[str, Any], result: Result) -> bytes:
    """Return the statement about the result. A prediction is a test: Supported has passed, Undecided is a
    warning, and the others have failed.
    """
    tests: dict[Verdict | None, list[str]] = {}
    for one in result.hypotheses:
        where = "" if one.magnitude is None else f" at {one.perturbation} {one.magnitude:g}"
        tests.setdefault(one.verdict, []).append(f"{one.prediction}{where}")
    failed = [
        *[f"control: {one.name}" for one in result.controls if not one.passed],
        *tests.get(Verdict.CONTRADICTED, []),
        *tests.get(Verdict.COMPARATOR_COLLAPSED, []),
    ]
    warned = tests.get(Verdict.UNDECIDED, [])
    predicate = {
        "result": "FAILED" if failed or result.void else "WARNED" if warned else "PASSED",
        "configuration": [{"name": PLAN_FILE, "digest": _in_toto(digest(plan))}],
        "passedTests": tests.get(Verdict.SUPPORTED, []),
        "warnedTests": warned,
        "failedTests": failed,
        "deviations": result.recorded,
        "libraries": {name: _release(name) for name in LIBRARIES},
    }
    subjects = {DATA_FILE: digest(data), RESULT_FILE: digest(result.document())}
    return _statement(subjects, RESULT_TYPE, predicate)


def _statement(subjects: Mapping[str, str], predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": _in_toto(one)} for name, one in subjects.items()],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def _release(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _in_toto(prefixed: str) -> dict[str, str]:
    return {"sha256": prefixed.removeprefix(HASH_PREFIX)}
