"""T07: the pods run in the zone of their data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from convoy_controllers.advice.json_values import mapping, numbered, objects, text, words
from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.subject import Role, Subject
from convoy_crds.advice import Severity
from convoy_crds.trainingjob_checkpoint import ZONE_KEY

_MAX_CLAIMS = 1000


def claim_zones(objects: list[Mapping[str, Any]]) -> dict[tuple[str, str], frozenset[str]]:
    """Return the zones of the volume of each PersistentVolumeClaim among these objects, by namespace and
    name. A claim whose zone is unknown is left out.
    """
    volumes = {
        mapping(one, "metadata").get("name"): one for one in objects if one.get("kind") == "PersistentVolume"
    }
    found: dict[tuple[str, str], frozenset[str]] = {}
    for one in objects[:_MAX_CLAIMS]:
        if one.get("kind") != "PersistentVolumeClaim":
            continue
        meta = mapping(one, "metadata")
        volume = volumes.get(mapping(one, "spec").get("volumeName")) or {}
        zones = _zones_of(volume) or _labelled(one)
        if zones:
            found[str(meta.get("namespace") or ""), str(meta.get("name"))] = zones
    return found


def _zones_of(volume: Mapping[str, Any]) -> frozenset[str]:
    required = mapping(volume, "spec", "nodeAffinity", "required")
    return _terms(required.get("nodeSelectorTerms")) or _labelled(volume)


def _labelled(one: Mapping[str, Any]) -> frozenset[str]:
    zone = mapping(one, "metadata", "labels").get(ZONE_KEY)
    return frozenset({str(zone)}) if zone else frozenset()


def _terms(terms: Any) -> frozenset[str]:
    """Return the zones that the terms of a node selector allow."""
    return frozenset(
        value
        for term in objects(terms)
        for one in objects(term.get("matchExpressions"))
        if one.get("key") == ZONE_KEY and one.get("operator") == "In"
        for value in words(one.get("values"))
    )


def _bound_zones(role: Role) -> frozenset[str]:
    """Return the zones to which the template binds the pods of a role; empty if they may run anywhere."""
    if zone := mapping(role.pod, "nodeSelector").get(ZONE_KEY):
        return frozenset({str(zone)})
    required = mapping(role.pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return _terms(required.get("nodeSelectorTerms"))


def _running_zones(subject: Subject) -> frozenset[str]:
    """Return the zones in which the ranks run, if the job's topology keys show them."""
    placed = subject.training.status.placement if subject.training else None
    keys = placed.keys if placed else []
    return frozenset(one.name for key in keys if key.key == ZONE_KEY for one in key.ranks if one.name != "-")


def _check(subject: Subject) -> Iterator[Found]:
    running = _running_zones(subject)
    for role in subject.roles:
        bound = _bound_zones(role)
        for number, volume in numbered(role.pod.get("volumes")):
            claim = text(mapping(volume, "persistentVolumeClaim").get("claimName"))
            data = subject.around.claim_zones.get(claim, frozenset())
            away = bound - data if bound and not bound & data else running - data
            if not data or not away:
                continue
            yield Found(
                f"{role.pod_path}.volumes[{number}].persistentVolumeClaim.claimName",
                f"the data of claim {claim} is in zone {', '.join(sorted(data))}, but pods of role "
                f"{role.name} run in zone {', '.join(sorted(away))}: they cannot mount it, or read it over "
                "the link between zones",
                f"bind the pods to the zone of the data: nodeSelector: {{{ZONE_KEY}: {min(data)}}}",
            )


T07 = Rule("T07", "Data in another zone", Severity.WARNING, _check)
