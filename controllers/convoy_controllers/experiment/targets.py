"""Checks that each perturbation can hit a pod of each arm, before anything runs.

Without this, a misspelt role lets every run go on to its end, and only then fails it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from convoy_controllers.experiment import arms
from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_arm import Arm, ArmType
from convoy_crds.experiment_plan import Perturbation
from convoy_crds.perturbations import Backend, PerturbationKind, perturbation_type

Problem = tuple[str, str]
"""Path of a field, and the reason why it is wrong."""


def problems(spec: ExperimentSpec) -> Iterator[Problem]:
    """Yield the perturbations that cannot disturb a pod of an arm."""
    for number, one in enumerate(spec.perturbations or ()):
        if Backend.AGENT not in perturbation_type(one.kind).backends:
            continue
        path = f"spec.perturbations[{number}]"
        for arm in (arms.effective(spec, named.name) for named in spec.arms):
            if arm.template is None:
                continue
            if one.start_seconds >= spec.run_deadline_seconds:
                why = (
                    f"the perturbation begins after {one.start_seconds:g} s, but a run may take only "
                    f"{spec.run_deadline_seconds} s (runDeadlineSeconds)"
                )
                yield f"{path}.startSeconds", why
                break
            yield from ((f"{path}.{field}", why) for field, why in _misses(one, arm))


def role_of(registered: Perturbation, arm: Arm) -> str | None:
    """Return the role that a perturbation affects: by default the first role of the arm's job."""
    return registered.target.role or next(iter(_roles(arm)), None)


def _misses(one: Perturbation, arm: Arm) -> Iterator[Problem]:
    """Yield the fields of a perturbation that fit no pod of an arm."""
    roles, of_arm = _roles(arm), f"arm {arm.name!r}"
    name = role_of(one, arm)
    if not roles or name is None:
        return  # The API server's check of the arm's job names the missing roles.
    if name not in roles:
        yield "target.role", f"{of_arm} has no role {name!r}; name one of: {', '.join(roles)}"
        return
    role = roles[name]
    replicas, processes = role.get("replicas"), role.get("processesPerReplica")
    if arm.type is not ArmType.TRAINING_JOB or not isinstance(replicas, int):
        replicas = None  # Replicas of servers may be scaled.
    if one.target.slot is not None and replicas is not None and one.target.slot >= replicas:
        yield "target.slot", f"role {name!r} of {of_arm} has {replicas} replicas, counted from 0"
    if one.kind is PerturbationKind.SLOW_RANK and isinstance(processes, int) and processes > 1:
        why = f"role {name!r} of {of_arm} has processesPerReplica {processes}, SlowRank needs 1: use SlowNode"
        yield "kind", why
    pod = _mapping(_mapping(role.get("template")).get("spec"))
    if one.kind is PerturbationKind.LINK_LIMIT and pod.get("hostNetwork") is True:
        why = f"LinkLimit limits the pod's own interface, but role {name!r} of {of_arm} has hostNetwork"
        yield "kind", why
    if one.kind is PerturbationKind.FULL_DISK:
        yield from _volume(one, pod, f"role {name!r} of {of_arm}")


def _volume(one: Perturbation, pod: Mapping[str, Any], where: str) -> Iterator[Problem]:
    able = [
        str(volume.get("name"))
        for volume in _mappings(pod.get("volumes"))
        if (folder := _mapping(volume.get("emptyDir"))).get("medium") == "Memory" and "sizeLimit" in folder
    ]
    needs = "FullDisk needs an emptyDir with medium Memory and a sizeLimit"
    listed = ", ".join(able) or "none"
    if one.target.volume is None and len(able) != 1:
        yield "target.volume", f"{needs}; without a name exactly one, but {where} has {listed}"
    elif one.target.volume is not None and one.target.volume not in able:
        yield "target.volume", f"{needs} with the name {one.target.volume!r}, but {where} has {listed}"


def _roles(arm: Arm) -> dict[str, Mapping[str, Any]]:
    body = arm.template.spec if arm.template is not None else {}
    return {str(role.get("name")): role for role in _mappings(body.get("roles"))}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
