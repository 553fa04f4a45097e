"""Finds templates that conflict with Convoy's own parts of a pod, and templates that need a dry run. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convoy_controllers.trainingjob.digests import digest
from convoy_controllers.workers.pod import OWN_VOLUMES
from convoy_controllers.workers.refusal import Finding
from convoy_controllers.workers.security import refused_root
from convoy_crds.podtemplate import PodSpec, PodTemplate
from convoy_crds.terms import LABEL_ROLE, MOUNT_PATH
from convoy_crds.trainingjob import TrainingJob

_AGENT_PATHS = frozenset({MOUNT_PATH, MOUNT_PATH.removeprefix("/var")})
"""Mount paths of the agent's volume. In most images, /var/run is a link to /run."""


def clashes(job: TrainingJob) -> Iterator[Finding]:
    """Yield the volume names and mount paths in templates that are reserved for Convoy."""
    for number, role in enumerate(job.spec.roles):
        if role.template is not None:
            where = f"spec.roles[{number}].template.spec"
            yield from _volumes(where, role.template.spec)
            yield from _mounts(where, role.template.spec)


def forbidden_root(job: TrainingJob) -> Iterator[Finding]:
    """Yield containers that ask for root although Convoy's default makes the kubelet reject root."""
    for number, role in enumerate(job.spec.roles):
        for field, why in refused_root(role.template.spec.to_dict() if role.template else {}):
            yield Finding(f"spec.roles[{number}].template.spec.{field}", why)


def _volumes(where: str, spec: PodSpec) -> Iterator[Finding]:
    for number, volume in enumerate(spec.volumes or ()):
        if volume.name in OWN_VOLUMES:
            why = f"{volume.name!r} is reserved for Convoy; choose another name"
            yield Finding(f"{where}.volumes[{number}].name", why)


def _mounts(where: str, spec: PodSpec) -> Iterator[Finding]:
    for number, mount in enumerate(spec.containers[0].volume_mounts or () if spec.containers else ()):
        path = posixpath.normpath(mount.mount_path)
        if path in _AGENT_PATHS:
            why = f"{path} is reserved for the connection to the node's agent; mount the volume elsewhere"
            yield Finding(f"{where}.containers[0].volumeMounts[{number}].mountPath", why)


def untried(job: TrainingJob, create: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the pods to send as a dry run: for each role whose template the API server may never have
    accepted, the first pod to create.

    A spec that has formed an incarnation was accepted, so a restart after a fault needs no dry run. A role
    without a template needs none either, because every field of its pods comes from Convoy.
    """
    if not create or job.status.internal.incarnation.spec == digest(job):
        return ()
    own = {role.name for role in job.spec.roles if role.template not in (None, PodTemplate())}
    first = {body["metadata"]["labels"][LABEL_ROLE]: body for body in reversed(create)}
    return tuple(body for role, body in first.items() if role in own)
