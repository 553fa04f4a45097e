"""T05, T11 and T12: another run can give the same result, the record of a run is complete, and a result of
chance is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from convoy_controllers.advice.images import unpinned
from convoy_controllers.advice.json_values import mapping, numbered, objects, text
from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.settings import settings
from convoy_controllers.advice.subject import Role, Subject
from convoy_crds import servingjob
from convoy_crds.advice import Severity
from convoy_crds.terms import ANNOTATION_DATASET_VERSION, ANNOTATION_REVISION
from convoy_crds.trainingjob_status import Phase

_SOURCE = re.compile(r"\b(?:s3|gs|gcs|hf|az|abfss?|hdfs|dvc)://\S+")
"""Matches the address of data."""
_VERSION = re.compile(
    r"@[\w.-]+|(?:^|[/_.-])v\d+|\d{4}-?\d{2}-?\d{2}|(?<![0-9a-z])[0-9a-f]{12,64}(?![0-9a-z])", re.I
)
"""Matches a version in an address or a name: `@main`, `/v3`, a date or a digest."""
_DATA = re.compile(r"data|corpus|train|samples|images|tokens", re.I)
"""Matches the name of a volume with data."""
_VERSION_WORDS = frozenset({"version", "revision", "snapshot", "sha", "digest", "commit"})
_REVISIONS = frozenset({"commit", "revision", "sha"})


def names_seed(subject: Subject) -> bool | None:
    """Return True if the job names its seed, False if it does not; None if this cannot be judged.

    The default of an Engine counts as named, because the Engine belongs to the record of the run.
    """
    if any("seed" in one.words for one in settings(subject)):
        return True
    unknown = False
    for role in subject.roles:
        if role.engine is None:
            continue
        schema = subject.schema(role)
        if schema is None or "seed" not in schema:
            unknown = True
        elif isinstance(schema["seed"], Mapping) and "default" in schema["seed"]:
            return True
    return None if unknown else False


def _unversioned(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each source of data without a version."""
    found = list(settings(subject))
    named = any(_VERSION_WORDS & set(one.words) and _DATA.search(one.name) for one in found)
    if named or subject.annotations.get(ANNOTATION_DATASET_VERSION):
        return
    for one in found:
        address = _SOURCE.search(one.value)
        if address is not None and not _VERSION.search(address[0].partition("://")[2]):
            yield one.path, address[0]
    for role in subject.roles:
        yield from _claims(role)


def _claims(role: Role) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each claim with data whose name and folder have no version."""
    for number, volume in numbered(role.pod.get("volumes")):
        claim = text(mapping(volume, "persistentVolumeClaim").get("claimName"))
        if not claim:
            continue
        mounts = [
            one
            for container in role.containers()
            for one in objects(container.body.get("volumeMounts"))
            if one.get("name") == volume.get("name")
        ]
        texts = [claim, *(text(one.get(key)) for one in mounts for key in ("mountPath", "subPath"))]
        if any(map(_DATA.search, texts)) and not any(map(_VERSION.search, texts)):
            yield f"{role.pod_path}.volumes[{number}].persistentVolumeClaim.claimName", f"claim {claim}"


def _reproducible(subject: Subject) -> Iterator[Found]:
    if subject.kind == servingjob.KIND.name:
        return
    if names_seed(subject) is False and not subject.repeated:
        yield Found(
            f"{subject.roles[0].main.path}.env",
            "no variable, argument or parameter names a seed: another run gives another result, and nobody "
            "can tell a change from chance",
            "pass a seed to the program, such as the argument --seed=1",
        )
    for path, name in _unversioned(subject):
        yield Found(
            path,
            f"{name} names no version of its data: a run next month may read other data",
            f"use a folder or address with a version, or set the annotation {ANNOTATION_DATASET_VERSION}",
        )


def missing_parts(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Yield what the record of a finished run lacks: the path, the name and the remedy."""
    job = subject.training
    if job is None:
        return
    record = job.status.provenance
    pinned = {one.image for one in record.images if one.pinned} if record is not None else set()
    for role in subject.roles:
        for container in role.containers():
            if unpinned(container) is not None and container.body["image"] not in pinned:
                yield f"{container.path}.image", "the digest of the image", "name the image by digest"
    own = any(role.engine is None for role in subject.roles)
    revised = subject.annotations.get(ANNOTATION_REVISION) or any(
        _REVISIONS & set(one.words) and not _DATA.search(one.name) for one in settings(subject)
    )
    if own and not revised:
        remedy = f"set the annotation {ANNOTATION_REVISION} to the commit"
        yield "metadata.annotations", "the revision of the code", remedy
    if names_seed(subject) is False:
        yield f"{subject.roles[0].main.path}.env", "the seed", "pass the seed as a variable or an argument"
    progress = job.status.progress
    if job.status.result is None and (progress is None or (progress.loss is None and not progress.metrics)):
        remedy = "call job.report(step, loss=...) or job.set_result({...})"
        yield "status.result", "any figure of the result", remedy


def _recorded(subject: Subject) -> Iterator[Found]:
    job = subject.training
    if job is None or job.status.phase is not Phase.SUCCEEDED:
        return
    missing = list(missing_parts(subject))
    if missing:
        names = ", ".join(dict.fromkeys(name for _, name, _ in missing))
        remedies = "; ".join(dict.fromkeys(remedy for *_, remedy in missing))
        yield Found(missing[0][0], f"the record of this run lacks {names}: nobody can repeat it", remedies)


def _repeated(subject: Subject) -> Iterator[Found]:
    job = subject.training
    if job is None or job.status.phase is not Phase.SUCCEEDED or subject.repeated:
        return
    progress = job.status.progress
    measured = bool(job.status.result) or bool(progress and progress.metrics)
    if measured and names_seed(subject):
        yield Found(
            "spec",
            "the result is that of a single seed: another seed gives another one, and the spread is unknown",
            "repeat it as an Experiment with several blocks, which reports a confidence interval",
        )


T05 = Rule("T05", "Seed and version of the data", Severity.INFO, _reproducible)
T11 = Rule("T11", "Complete record of the run", Severity.INFO, _recorded, static=False)
T12 = Rule("T12", "Repeated runs with an interval", Severity.INFO, _repeated, static=False)
