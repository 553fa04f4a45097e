"""T10: the pods use what they request."""

from __future__ import annotations

import math
from collections.abc import Iterator

from convoy_controllers.advice.requests import accelerator
from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.subject import Subject
from convoy_crds.advice import Severity, Usage

LEAST_USE = 0.3
"""Fraction of the request below which a resource counts as idle."""
LEAST_SECONDS = 60
"""Shortest time over which the use is judged."""
LEAST_PROCESSORS = 1.0
"""Fewer requested processors are not worth a finding."""


def idle(usage: Usage | None, least: float) -> bool:
    """Return True if a resource was idle for long enough. `least` is the smallest request that matters."""
    if usage is None or usage.seconds < LEAST_SECONDS or usage.requested < least:
        return False
    return usage.used < LEAST_USE * usage.requested


def _check(subject: Subject) -> Iterator[Found]:
    job = subject.training
    facts = job.status.facts if job is not None else None
    if job is None or facts is None:
        return
    role = next((one for one in subject.roles if not one.independent), subject.roles[0])
    processors, devices = facts.processors, facts.accelerators
    # A rank on a GPU leaves its processors idle on purpose, so only the GPU counts.
    if devices is None and processors is not None and idle(processors, LEAST_PROCESSORS):
        fewer = math.ceil(10 * processors.used) / 10
        yield Found(
            f"{role.main.path}.resources.requests.cpu",
            f"the pods request {processors.requested:g} processors and use {processors.used:g} "
            f"({processors.used / processors.requested:.0%}): the others stand idle while other jobs wait",
            f"request about {fewer:g} processors for all pods together, or use fewer pods",
        )
    if devices is not None and idle(devices, 1.0):
        resource = accelerator(role.main) or "nvidia.com/gpu"
        yield Found(
            f"{role.main.path}.resources.limits.{resource}",
            f"the pods hold {devices.requested:g} accelerators, which are busy for "
            f"{devices.used / devices.requested:.0%} of the time",
            "use fewer or smaller ones, a larger batch, or more loader processes",
        )


T10 = Rule("T10", "Idle processors or accelerators", Severity.WARNING, _check, static=False)
