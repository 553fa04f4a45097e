"""Records what a finished job ran, and makes the same job again from the record. Pure.

The record is complete if it has, for each container, the digest of one image of a registry; for a program of
the user's own, the revision of the code; the seed; and a figure of the result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from convoy_controllers.advice.reproducibility import missing_parts
from convoy_controllers.advice.settings import Setting, settings
from convoy_controllers.advice.subject import Role, Subject, Surroundings, of_training
from convoy_controllers.guard.rank_placement import HARDWARE_LABELS
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.version import VERSION
from convoy_controllers.views import NodeView, PodView, SlotView
from convoy_crds.containers import UNNAMED
from convoy_crds.engine import Engine
from convoy_crds.meta import GROUP
from convoy_crds.provenance import (
    MAX_DEFAULTS_BYTES,
    MAX_HARDWARE,
    MAX_IMAGES,
    MAX_MISSING,
    MAX_NODES,
    JobProvenance,
    RunEngine,
    RunImage,
)
from convoy_crds.terms import ANNOTATION_DATASET_VERSION, ANNOTATION_REVISION, LABEL_MANAGED, LABEL_ROLE
from convoy_crds.trainingjob import TrainingJob

_MAX_CHARS = 1024
_REVISIONS = frozenset({"commit", "revision", "sha"})
_VERSIONS = frozenset({"version", "revision", "snapshot", "commit", "sha"})
_DATA = frozenset({"data", "dataset"})
_NOT_REPEATED = ("suspend", "managedBy")
"""Fields of a spec that say nothing about the run."""


def record(draft: Draft, pods: Iterable[PodView]) -> None:
    """Set the record of a job that ends. `pods` are the pods of its last incarnation."""
    observed = draft.observed
    job = observed.job.model_copy(update={"status": draft.status})
    own = [pod for pod in pods if pod.owner_uid == job.metadata.uid]
    found = of_run(job, observed.engine, own, observed.slots.values())
    found.hardware = _hardware(observed.nodes.get(pod.node or "") for pod in own)
    draft.status.provenance = found


def of_run(
    job: TrainingJob, engine: Engine | None, pods: Iterable[PodView], slots: Iterable[SlotView] = ()
) -> JobProvenance:
    """Return the record of a job that has ended, with its last pods and their agents' reports."""
    own = list(pods)
    around = Surroundings(engines={engine.metadata.name: engine} if engine is not None else {})
    subject = of_training(job, around)
    given, images = list(settings(subject)), _images(job, subject, engine, own)
    used, problem = _engine(job, engine)
    nodes = sorted({pod.node for pod in own if pod.node})
    facts = [rank.facts for slot in slots for rank in slot.ranks if rank.facts is not None]
    annotations = job.metadata.annotations
    return JobProvenance(
        generation=job.metadata.generation or 0,
        spec_digest=spec_digest(job),
        engine=used,
        images=images[:MAX_IMAGES],
        revision=_short(annotations.get(ANNOTATION_REVISION) or _value(given, _REVISIONS, without=_DATA)),
        dataset=_short(annotations.get(ANNOTATION_DATASET_VERSION) or _value(given, _VERSIONS, also=_DATA)),
        seed=_short(_value(given, frozenset({"seed"})) or _text((used.defaults if used else {}).get("seed"))),
        convoy=VERSION,
        python=_short(", ".join(sorted({one.python for one in facts} - {""}))),
        torch=_short(", ".join(sorted({one.torch for one in facts} - {""}))),
        nodes=nodes[:MAX_NODES],
        node_count=len(nodes),
        missing=[_short(one) for one in (*_unpinned(images), *problem, *_start(job), *_others(subject))][
            :MAX_MISSING
        ],
    )


def _hardware(nodes: Iterable[NodeView | None]) -> list[str]:
    """Return the hardware of nodes, as their labels name it."""
    labels = [one.labels for one in nodes if one is not None]
    texts = {" ".join(found[name] for name in HARDWARE_LABELS if name in found) for found in labels}
    return [_short(one) for one in sorted(texts - {""})][:MAX_HARDWARE]


def spec_digest(job: TrainingJob) -> str:
    """Return the digest of a job's spec without fields that have their defaults."""
    spec = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return f"sha256:{hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()}"


def again(job: TrainingJob, name: str = "") -> dict[str, Any]:
    """Return the manifest of a job that repeats the recorded run, with the same images by digest, and with
    the values that the Engine's defaults had. `name`: name of the job; by default that of the recorded one.

    The job must have a record.
    """
    found, spec = job.status.provenance, job.spec.to_dict()
    if found is None:
        raise ValueError(f"job {job.metadata.name} has no record")
    for field in _NOT_REPEATED:
        spec.pop(field, None)
    if found.engine is not None:
        spec["engine"]["params"] = {**found.engine.defaults, **spec["engine"].get("params", {})}
    for role in spec["roles"]:
        _pin(role, {one.container: one.pinned for one in found.images if one.role == role["name"]})
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "metadata": {"name": name or job.metadata.name, **_metadata(job, found)},
        "spec": spec,
    }


def _metadata(job: TrainingJob, found: JobProvenance) -> dict[str, Any]:
    """Return the namespace, the user's labels, such as that of the queue, and the recorded versions."""
    notes = {ANNOTATION_REVISION: found.revision, ANNOTATION_DATASET_VERSION: found.dataset}
    made = {
        "namespace": job.metadata.namespace,
        "labels": {key: value for key, value in job.metadata.labels.items() if _is_users(key)},
        "annotations": {key: value for key, value in notes.items() if value},
    }
    return {name: value for name, value in made.items() if value}


def _is_users(label: str) -> bool:
    return label != LABEL_MANAGED and not label.startswith(f"{GROUP}/")


def _pin(role: dict[str, Any], pinned: Mapping[str, str]) -> None:
    """Name the images of a role by digest. A role without a container gets one for its Engine."""
    containers = role.get("template", {}).get("spec", {}).get("containers")
    if not containers and pinned.get(UNNAMED):
        pod = role.setdefault("template", {}).setdefault("spec", {})
        pod["containers"] = containers = [{"name": UNNAMED}]
    inits = role.get("template", {}).get("spec", {}).get("initContainers")
    for number, container in enumerate([*(containers or ()), *(inits or ())]):
        name = container.get("name") or (UNNAMED if number == 0 else "")
        if pinned.get(name):
            container["image"] = pinned[name]


def _images(
    job: TrainingJob, subject: Subject, engine: Engine | None, pods: Iterable[PodView]
) -> list[RunImage]:
    """Return the images of all containers that the spec names, each with every digest that pods ran."""
    ran: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        for container, digest in pod.image_ids.items():
            key = pod.labels.get(LABEL_ROLE, ""), container
            ran.setdefault(key, set()).add(digest)
    return [
        RunImage(role=role, container=container, image=_short(image), digest=_short(digest))
        for role, container, image in _named(job, subject, engine)
        for digest in sorted(ran.get((role, container), {""}))
    ]


def _named(job: TrainingJob, subject: Subject, engine: Engine | None) -> Iterator[tuple[str, str, str]]:
    """Yield the role, the name and the image of each container that the spec or the Engine names."""
    for role in subject.roles:
        default = engine.spec.image if engine is not None else ""
        if not any(True for _ in role.containers()) and job.spec.engine is not None:
            yield role.name, UNNAMED, default
        for name, image in _containers(role):
            yield role.name, name, image or default


def _containers(role: Role) -> Iterator[tuple[str, str]]:
    for container in (*role.containers(), *role.containers(init=True)):
        name = container.body.get("name") or (UNNAMED if container.main else "")
        yield str(name), str(container.body.get("image") or "")


def _unpinned(images: Iterable[RunImage]) -> Iterator[str]:
    """Yield what the images lack."""
    digests: dict[tuple[str, str], list[RunImage]] = {}
    for one in images:
        digests.setdefault((one.role, one.container), []).append(one)
    for (role, container), found in digests.items():
        what = f"container {container} of role {role}"
        if len(found) > 1:
            yield f"one image of {what}: its pods ran {len(found)} different ones of {found[0].image}"
        elif not found[0].digest:
            yield f"the digest of {found[0].image} of {what}: no node reported it"
        elif not found[0].pinned:
            yield f"a registry with {found[0].image} of {what}: it was loaded into the node"


def _engine(job: TrainingJob, engine: Engine | None) -> tuple[RunEngine | None, list[str]]:
    """Return the Engine as it is now, and what the record lacks of it."""
    if job.spec.engine is None:
        return None, []
    if engine is None:
        return None, [f"the Engine {job.spec.engine.name}: it was deleted before the job ended"]
    properties = engine.spec.params_schema.get("properties")
    defaults = {
        name: one["default"]
        for name, one in (properties if isinstance(properties, Mapping) else {}).items()
        if isinstance(one, Mapping) and one.get("default") is not None and name not in job.spec.engine.params
    }
    fits = len(json.dumps(defaults).encode()) <= MAX_DEFAULTS_BYTES
    found = RunEngine(
        name=engine.metadata.name,
        image=engine.spec.image,
        command=[_short(one) for one in engine.spec.command],
        defaults=defaults if fits else {},
    )
    return found, [] if fits else [f"the defaults of the Engine {found.name}: they are too large"]


def _start(job: TrainingJob) -> Iterator[str]:
    """Yield the step with which the job started, if the spec leaves it open."""
    source = job.spec.checkpoint.resume_from
    if source is not None and not source.step:
        yield f"the step of job {source.job or source.uid} with which this job started: set resumeFrom.step"


def _others(subject: Subject) -> Iterator[str]:
    """Yield what the record lacks apart from images."""
    for path, name, _ in missing_parts(subject):
        if not path.endswith(".image"):
            yield name


def _value(
    given: Iterable[Setting],
    words: frozenset[str],
    also: frozenset[str] = frozenset(),
    without: frozenset[str] = frozenset(),
) -> str:
    """Return the first value of a setting whose name has one of `words`, and one of `also`, if any, and none
    of `without`.
    """
    for one in given:
        named = set(one.words)
        if one.value and words & named and not without & named and (not also or also & named):
            return one.value
    return ""


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 4] + " ..."
