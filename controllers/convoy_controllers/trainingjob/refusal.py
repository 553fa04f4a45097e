"""Why the API server would not create a pod, and which field of the job is at fault. Pure.

A pod is made from a role's template, with additions of Convoy's. Findings about what comes from the template
name its field in the job; all others name the template as a whole and the field of the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_controllers.trainingjob.podpaths import Token, joined, located, origin, tokens
from convoy_crds.trainingjob import TrainingJob

LISTED = 3
"""Findings of one refusal that a message names; the others are counted."""
_DECODING = re.compile(r'^Pod in version "[^"]*" cannot be handled as a Pod: (.*)$', re.DOTALL)
_INVALID = re.compile(r'^Pod "[^"]*" is invalid: (.*)$', re.DOTALL)
_UNKNOWN = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_TYPE = re.compile(r"cannot unmarshal (\w+)(?: (\S+))? into Go struct field \w+\.(\S+) of type (\S+)")
_QUANTITY = re.compile(r"[+-]?[0-9.]+([eEinumkKMGTP]*[-+]?[0-9]*)")
"""A resource quantity, by the expression in the API server's own message."""
_KINDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "number": "a number",
    "bool": "true or false",
}
_WANTED = {
    "string": "text",
    "bool": "true or false",
    "int32": "a whole number",
    "int64": "a whole number",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one pod was not created."""

    message: str
    path: str = ""
    """The field of the job at fault. Empty where the job may be right, as under a quota or a policy."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a template."""

    path: str
    """Field of the job, such as `spec.roles[0].template.spec.containers[0].env[1].name`."""
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def findings(
    job: TrainingJob, body: Mapping[str, Any], role: str, message: str, causes: Sequence[tuple[str, str]] = ()
) -> list[Finding]:
    """Return the errors of a role's template, from the API server's refusal of a pod made from it.

    `message` and `causes`, pairs of field path and text, are those of its Status. Empty where the refusal is
    no judgement of the pod itself: quota, rights, admission webhooks and policies.
    """
    index = next(number for number, one in enumerate(job.spec.roles) if one.name == role)
    template = job.spec.roles[index].template
    made = template.to_dict() if template else {}
    where = f"spec.roles[{index}].template"
    return [
        Finding(f"{where}.{joined(path)}", why)
        if (path := origin(pod_path, body, made)) is not None
        else Finding(where, f"{joined(pod_path)}: {why}" if pod_path else why)
        for pod_path, why in dict.fromkeys(_stated(body, message, causes))
    ]


def refusal(found: Sequence[Finding]) -> Refusal:
    """All findings about one pod, at least one."""
    first, *others = found
    more = "".join(f"; {one}" for one in others[: LISTED - 1])
    rest = len(others) - LISTED + 1
    return Refusal(f"{first.why}{more}{f'; and {rest} more' if rest > 0 else ''}", first.path)


def _stated(
    body: Mapping[str, Any], message: str, causes: Sequence[tuple[str, str]]
) -> Iterator[tuple[tuple[Token, ...], str]]:
    """Fields of the pod and what is wrong with each."""
    if match := _INVALID.match(message):
        named = [(tokens(path), why) for path, why in causes if path not in ("", "<nil>")]
        yield from named or [((), match[1])]
    elif match := _DECODING.match(message):
        yield from _undecoded(body, match[1])


def _undecoded(body: Mapping[str, Any], message: str) -> Iterator[tuple[tuple[Token, ...], str]]:
    """Fields of a pod that is none: unknown ones, wrong types, quantities that are none."""
    if unknown := _UNKNOWN.findall(message):
        for which, path in unknown:
            yield tokens(path), "there is no such field" if which == "unknown" else "is there more than once"
    elif match := _TYPE.search(message):
        kind, number, path, wanted = match.groups()
        # A type of Go's that is embedded in another stands among the fields.
        names = tuple(name for name in path.split(".") if not name[:1].isupper())
        hint = ": put it in quotes" if wanted == "string" and kind in ("number", "bool") else ""
        why = f"must be {_wanted(wanted)}, is {number or _KINDS.get(kind, kind)}{hint}"
        whole = wanted.startswith(("[]", "map["))
        yield located(body, names, lambda value: _kind(value) == kind, entries=not whole) or names, why
    elif "quantities must match" in message:
        yield next(_quantities(body), ()), "must be a quantity such as 500m, 2 or 16Gi"
    else:
        yield (), message


def _wanted(name: str) -> str:
    """A type of Go in words; types of the Kubernetes API keep their names."""
    if name.startswith("[]"):
        return "a list"
    if name.startswith("map["):
        return "an object"
    return _WANTED.get(name) or f"{name} as in a pod"


def _kind(value: object) -> str:
    """The JSON type of a value, as Go names it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    names: tuple[tuple[type, str], ...] = ((Mapping, "object"), (str, "string"), (Sequence, "array"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _quantities(body: Mapping[str, Any]) -> Iterator[tuple[Token, ...]]:
    """Fields that hold something else than the quantity they should."""

    def wrong(value: object) -> bool:
        return isinstance(value, str) and not _QUANTITY.fullmatch(value.strip())

    lists = ("containers", "initContainers")
    paths: list[tuple[str, ...]] = [
        ("spec", one, "resources", kind) for one in lists for kind in ("limits", "requests")
    ]
    paths += [("spec", "volumes", "emptyDir", "sizeLimit"), ("spec", "overhead")]
    for path in paths:
        if found := located(body, path, wrong):
            yield found
