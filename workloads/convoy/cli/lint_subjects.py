"""Finds the jobs in manifests, with what the manifests say about their surroundings, and judges them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from convoy.cli.manifest import Manifest, engines, parse
from convoy.cli.sources import Source
from convoy_controllers.advice.arrays import created_near, shape
from convoy_controllers.advice.gravity import claim_zones
from convoy_controllers.advice.registry import findings
from convoy_controllers.advice.subject import Subject, Surroundings, of_arm, of_serving, of_training
from convoy_controllers.experiment import arms
from convoy_crds.advice import AdviceFinding
from convoy_crds.engine import Engine
from convoy_crds.experiment import Experiment, ExperimentSpec
from convoy_crds.field_paths import InvalidFieldPath
from convoy_crds.meta import API_VERSION
from convoy_crds.terms import LABEL_EXPERIMENT
from convoy_crds.trainingjob import TrainingJob

Zones = Mapping[tuple[str, str], frozenset[str]]
"""Zones of claims, by namespace and name."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An object of a manifest file, and its findings."""

    source: str
    where: str
    findings: list[AdviceFinding]


def judged(read: Sequence[Source], ignore: Collection[str]) -> tuple[list[Judged], list[str]]:
    """Return the findings about each job and Experiment, and the errors of files and objects."""
    errors = [f"{source.name}: {source.error}" for source in read if source.error]
    everything = [one for source in read for one in source.manifests]
    context = _Context(everything, claim_zones([one for source in read for one in source.others]))
    found: list[Judged] = []
    for source in read:
        for manifest in source.manifests:
            if manifest.model is None:
                errors += [f"{source.name}: {manifest.where}: {error}" for error in manifest.errors]
                continue
            subjects = list(context.subjects(manifest))
            if subjects:
                skipped = {*ignore, *_ignored(manifest)}
                own = [one for subject in subjects for one in findings(subject, skipped)]
                found.append(Judged(source.name, manifest.where, own))
    return found, errors


def _ignored(manifest: Manifest) -> list[str]:
    """Return the rules that a job itself leaves out."""
    lint = getattr(getattr(manifest.model, "spec", None), "lint", None)
    return list(lint.ignore) if lint is not None else []


class _Context:
    """All manifests of a call, for rules that look beyond one job."""

    def __init__(self, everything: Sequence[Manifest], zones: Zones) -> None:
        self._engines: dict[str, Engine] = engines(everything)
        self._zones = zones
        jobs = [(one, one.job) for one in everything if one.job is not None]
        self._jobs = {(_namespace(one), job.metadata.name): job for one, job in jobs}
        self._similar = _similar([one for one in everything if one.job is not None])

    def subjects(self, manifest: Manifest) -> Iterator[Subject]:
        """Yield the jobs of an object: itself, or the arms of an Experiment."""
        around = self._around(manifest)
        if manifest.job is not None:
            yield of_training(manifest.job, around)
        elif manifest.serving is not None:
            subject = of_serving(manifest.serving, around)
            job = self._jobs.get((_namespace(manifest), subject.follows))
            followed = of_training(job, replace(around, similar=())) if job is not None else None
            yield replace(subject, around=replace(around, followed=followed))
        elif isinstance(manifest.model, Experiment):
            yield from _arms(manifest.model.spec, around)

    def _around(self, manifest: Manifest) -> Surroundings:
        namespace = _namespace(manifest)
        zones = {name: found for (place, name), found in self._zones.items() if place in ("", namespace)}
        similar = self._similar.get(id(manifest), ())
        return Surroundings(engines=self._engines, similar=similar, claim_zones=zones)


def _namespace(manifest: Manifest) -> str:
    return str((manifest.body.get("metadata") or {}).get("namespace") or "")


def _arms(spec: ExperimentSpec, around: Surroundings) -> Iterator[Subject]:
    """Yield the jobs of the arms. A sweep's job has the first values of its parameters."""
    swept = [(one.path, one.values[0]) for one in (spec.sweep.parameters if spec.sweep is not None else ())]
    for number, arm in enumerate(spec.arms):
        if arm.template is None:
            continue
        try:
            settings = arms.settings(arm, [] if arm.tuning is not None else swept)
        except InvalidFieldPath:
            continue  # `convoy validate` names the path that does not fit.
        body = {"apiVersion": API_VERSION, "kind": arm.type, "metadata": {"name": arm.name}, "spec": settings}
        job = parse(body)
        if job.job is not None:
            yield of_arm(of_training(job.job, around), f"spec.arms[{number}].template")
        elif job.serving is not None:
            yield of_arm(of_serving(job.serving, around), f"spec.arms[{number}].template")


def _similar(manifests: Sequence[Manifest]) -> dict[int, tuple[str, ...]]:
    """Return the near-identical jobs of the first job of each such group, by id of its manifest."""
    groups: dict[tuple[str, str], list[tuple[Manifest, TrainingJob]]] = defaultdict(list)
    for one in manifests:
        if one.job is not None and LABEL_EXPERIMENT not in one.job.metadata.labels:
            groups[_namespace(one), shape(_spec(one))].append((one, one.job))
    found = {}
    for members in groups.values():
        (first, job), *others = members
        created = job.metadata.creation_timestamp
        found[id(first)] = tuple(
            other.metadata.name
            for _, other in others
            if created_near(created, other.metadata.creation_timestamp)
        )
    return found


def _spec(manifest: Manifest) -> Mapping[str, Any]:
    spec = manifest.body.get("spec")
    return spec if isinstance(spec, Mapping) else {}
