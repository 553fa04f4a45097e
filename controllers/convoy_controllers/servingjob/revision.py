"""Revisions of a ServingJob. A revision has everything that defines the pods of the job's replicas.

The revision of the spec is compared with the stored revisions as a model, not by its hash. Thus an upgrade
of the operator that adds a field with a default rolls nothing. A stored revision that is rolled out again
gets the highest number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field, ValidationError

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply, owner_reference
from convoy_controllers.resources import CONTROLLER_REVISIONS
from convoy_crds.engine import Engine
from convoy_crds.meta import StatusModel
from convoy_crds.podtemplate import PodTemplate
from convoy_crds.servingjob import KIND, ServingJob, ServingRole
from convoy_crds.servingjob_rollout import DEFAULT_DRAIN_SECONDS, DEFAULT_PORT
from convoy_crds.servingjob_status import MAX_REVISIONS, ModelStatus
from convoy_crds.terms import LABEL_JOB, LABEL_KIND, LABEL_REVISION


class RoleRevision(StatusModel):
    """Everything that defines the pods of one role."""

    name: str
    group_size: int = 1
    engine: str = ""
    """Name of the Engine; empty if the role has its own template."""
    image: str = ""
    """Image of the Engine."""
    command: list[str] = Field(default_factory=list)
    """Command line of the ranks, with its arguments."""
    params: dict[str, Any] = Field(default_factory=dict)
    template: PodTemplate | None = None
    replica_peers: bool = False
    """True if the replicas get each other's addresses."""
    metrics_port: int = 0
    """Port of the metrics that the agent reads; 0 if it reads none."""
    metrics_path: str = ""


class Generation(StatusModel):
    """The generation of a TrainingJob that the replicas load."""

    uid: str
    store: str = ""
    incarnation: int = 0
    step: int = 0


class RevisionSpec(StatusModel):
    """Everything that defines the pods of the replicas."""

    roles: list[RoleRevision] = Field(default_factory=list)
    serving_role: str = ""
    port: int = DEFAULT_PORT
    drain_seconds: int = DEFAULT_DRAIN_SECONDS
    token_secret: str = ""
    generation: Generation | None = None
    claim: str = ""
    """PersistentVolumeClaim with the model; empty without one."""
    claim_path: str = ""

    def role(self, name: str) -> RoleRevision | None:
        """Return a role; None if the revision has no such role."""
        return next((one for one in self.roles if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision with its name and number."""

    name: str
    number: int
    spec: RevisionSpec


def successor(job: ServingJob, spec: RevisionSpec, role: str) -> str:
    """Return the name that a role of a revision has in the job's spec. If roles were renamed, their order
    shows which is which. Return an empty text if the spec lacks the role.
    """
    named, known = {one.name for one in job.spec.roles}, {one.name for one in spec.roles}
    before = (one.name for one in spec.roles if one.name not in named)
    after = (one.name for one in job.spec.roles if one.name not in known)
    return role if role in named else dict(zip(before, after, strict=False)).get(role, "")


def wanted(job: ServingJob, engines: Mapping[str, Engine], model: ModelStatus | None) -> RevisionSpec:
    """Return the revision that the spec defines. `model` is the chosen generation; None without one."""
    source = job.spec.model
    volume = source.volume if source else None
    return RevisionSpec(
        roles=[_role(role, engines, job.spec.service.port) for role in job.spec.roles],
        serving_role=job.spec.serving_role,
        port=job.spec.service.port,
        drain_seconds=job.spec.rollout.drain_seconds,
        token_secret=job.spec.service.auth.secret_name or "",
        generation=_generation(model) if source and source.checkpoint and model else None,
        claim=volume.claim_name if volume else "",
        claim_path=volume.path if volume else "",
    )


def _role(role: ServingRole, engines: Mapping[str, Engine], port: int) -> RoleRevision:
    engine = engines.get(role.engine.name) if role.engine else None
    containers = role.template.spec.containers if role.template else []
    own = [*(containers[0].command or ()), *(containers[0].args or ())] if containers else []
    return RoleRevision(
        name=role.name,
        group_size=role.group_size,
        engine=role.engine.name if role.engine else "",
        image=engine.spec.image if engine else "",
        command=own or (list(engine.spec.command) if engine else []),
        params=role.engine.params if role.engine else {},
        template=role.template,
        replica_peers=engine.spec.replica_peers if engine else False,
        metrics_port=(role.metrics.port or port) if role.metrics else 0,
        metrics_path=role.metrics.path if role.metrics else "",
    )


def _generation(model: ModelStatus) -> Generation:
    return Generation(uid=model.uid, store=model.store, incarnation=model.incarnation, step=model.step)


def digest(spec: RevisionSpec) -> str:
    """Return a digest of a revision. Fields with their default value are left out."""
    fields = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:10]


def target(spec: RevisionSpec, stored: Sequence[Revision]) -> Revision:
    """Return the revision with this spec: a stored one, or a new one with the next number. A stored one
    that is not the newest gets the next number.
    """
    newest, name = max((one.number for one in stored), default=0), digest(spec)
    # JSON has no null inside `params`, so a spec with such a null differs from what was stored for it.
    known = next((one for one in stored if one.spec == spec or one.name == name), None)
    if known is None:
        return Revision(name, newest + 1, spec)
    return known if known.number == newest else replace(known, number=newest + 1)


def kept(revisions: Iterable[Revision], used: Iterable[str]) -> tuple[Revision, ...]:
    """Return the revisions to keep, the newest first: those in use, and the newest others."""
    ordered = sorted(revisions, key=lambda one: one.number, reverse=True)
    names = {*used, *(one.name for one in ordered[:MAX_REVISIONS])}
    return tuple(one for one in ordered if one.name in names)


def apply(job: ServingJob, revision: Revision) -> Apply:
    """Return the child that stores a revision."""
    metadata = job.metadata
    labels = {LABEL_JOB: metadata.name, LABEL_KIND: KIND.name, LABEL_REVISION: revision.name}
    owner = owner_reference(KIND.api_version, KIND.name, metadata.name, metadata.uid)
    return Apply(
        CONTROLLER_REVISIONS,
        {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": {
                "name": f"{metadata.name}-{revision.name}",
                "labels": labels,
                "ownerReferences": [owner],
            },
            "revision": revision.number,
            "data": revision.spec.to_dict(),
        },
    )


def parse(stored: CachedObject) -> Revision | None:
    """Return the revision in a ControllerRevision; None if the object is no valid revision."""
    name = (stored.raw["metadata"].get("labels") or {}).get(LABEL_REVISION, "")
    try:
        spec = RevisionSpec.model_validate(stored.raw.get("data") or {})
    except ValidationError:
        return None
    return Revision(name, int(stored.raw.get("revision") or 0), spec) if name else None
