"""The hash of an Experiment's plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import rfc8785

from convoy_crds.experiment import MUTABLE
from convoy_crds.experiment_status import PlanEngine
from convoy_crds.meta import API_VERSION

HASH_PREFIX = "sha256:"


def plan_document(name: str, spec: Mapping[str, Any], engines: Iterable[PlanEngine]) -> dict[str, Any]:
    """Return the plan of an Experiment. `spec`: its spec as the API server stores it. `engines`: the Engines
    of its runs, at the time of the registration.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "name": name,
        "spec": {field: value for field, value in spec.items() if field not in MUTABLE},
        "engines": [one.to_dict() for one in sorted(engines, key=lambda one: one.name)],
    }


def canonical(value: Any) -> bytes:
    """Return a JSON value in its canonical form (RFC 8785)."""
    return rfc8785.dumps(value)


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value in its canonical form, with the prefix `sha256:`."""
    return HASH_PREFIX + hashlib.sha256(canonical(value)).hexdigest()


def plan_hash(plan: Mapping[str, Any]) -> str:
    """Return the hash of a plan document."""
    return digest(plan)
