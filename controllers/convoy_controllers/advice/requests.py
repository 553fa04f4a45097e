"""T02: each container says what it needs, and which type of device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from convoy_controllers.advice.json_values import mapping, objects
from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.subject import Container, Role, Subject
from convoy_crds.advice import Severity

_DEVICES = ("gpu", "tpu", "npu", "neuron", "gaudi", "xpu", "mig-")
"""Parts of the names of extended resources that are accelerators."""
_TYPES = ("product", "accelerator", "gpu", "tpu", "instance-type", "neuron", "device", "class")
"""Parts of the keys of node labels that name a type of device or machine."""


def amounts(container: Container) -> dict[str, str]:
    """Return the amount of each resource that a container requests. A limit without a request counts."""
    limits, requests = (mapping(container.body, "resources", name) for name in ("limits", "requests"))
    return {str(name): str(value) for name, value in {**limits, **requests}.items()}


def accelerator(container: Container) -> str:
    """Return the name of the accelerator resource that a container requests; empty without one."""
    return next(filter(is_accelerator, amounts(container)), "")


def is_accelerator(resource: str) -> bool:
    """Return True if a resource of pods is an accelerator, such as `nvidia.com/gpu`."""
    return "/" in resource and any(part in resource.lower() for part in _DEVICES)


def _check(subject: Subject) -> Iterator[Found]:
    for role in subject.roles:
        main = role.main
        if not (main.body.get("image") or main.body.get("resources")):
            continue  # The pod is the Engine's, and the defaults of its namespace are unknown.
        whole = mapping(role.pod, "resources", "requests")
        missing = [name for name in ("cpu", "memory") if name not in {**whole, **amounts(main)}]
        if missing:
            names = " and ".join(missing)
            yield Found(
                f"{main.path}.resources.requests",
                f"role {role.name} requests no {names}: its pods share nodes with too many others, are "
                "slowed by them, and are evicted first",
                f"set requests for {names} to what one pod needs",
            )
        device = accelerator(main)
        if device and not _names_type(role):
            yield Found(
                f"{role.pod_path}.nodeSelector",
                f"role {role.name} asks for {device} of any type: on mixed devices all ranks run at the "
                "speed of the slowest",
                "name the type by a node label, such as nodeSelector: {nvidia.com/gpu.product: ...}",
                Severity.INFO,
            )


def _names_type(role: Role) -> bool:
    """Return True if the template binds the pods to a type of device, by a node label or a resource claim."""
    keys = [*mapping(role.pod, "nodeSelector"), *_affinity_keys(role.pod)]
    named = any(part in str(key).lower() for key in keys for part in _TYPES)
    return named or bool(role.pod.get("resourceClaims"))


def _affinity_keys(pod: Mapping[str, Any]) -> Iterator[str]:
    required = mapping(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in objects(required.get("nodeSelectorTerms")):
        for one in objects(term.get("matchExpressions")):
            yield str(one.get("key"))


T02 = Rule("T02", "Requests and type of device", Severity.WARNING, _check)
