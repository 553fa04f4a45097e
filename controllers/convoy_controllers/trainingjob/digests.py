"""Digests of the parts of a job's spec that must not change while it runs."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import ZONE_KEY


def digest(job: TrainingJob) -> str:
    """Return a digest of the part of the spec that must not change while the job runs.

    Fields with their default value are left out. Otherwise a field that a later version of the operator
    adds would look like a change.
    """
    spec = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    fixed = {name: spec.get(name) for name in ("engine", "roles", "checkpoint")}
    peer = ((fixed["checkpoint"] or {}).get("tiers") or {}).get("peer") or {}
    if peer.get("topologyKey") == ZONE_KEY:
        # A job that names the default is like a job that leaves it out.
        del peer["topologyKey"]
    if placement := _fixed_placement(job):
        fixed["placement"] = placement
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:16]


def _fixed_placement(job: TrainingJob) -> dict[str, Any]:
    """Return the placement settings that must not change while the job runs; empty if all are defaults."""
    return job.spec.placement.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"shrink_first"}
    )


def layout_digest(job: TrainingJob) -> str:
    """Return a digest of the layout and placement of the pods: the placement, and the roles without their
    containers.

    Containers are left out because a later version of the operator may parse them differently. After such
    an upgrade, the digest would differ and falsely show that the job was suspended.
    """
    containers = {"template": {"spec": {"containers"}}}
    roles = [
        role.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude=containers
        )
        for role in job.spec.roles
    ]
    placement = _fixed_placement(job)
    found = {"roles": roles, "placement": placement} if placement else roles
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
