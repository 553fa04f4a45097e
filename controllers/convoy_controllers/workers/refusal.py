"""Explains why the API server refused to create a pod, and which field of the job is at fault. Pure.

A pod is built from a role's template and additions by Convoy. If the error is in a field from the template,
the explanation names that field of the job. Otherwise it names the whole template and the field of the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from convoy_controllers.workers.podpaths import Token, joined, located, origin, tokens
from convoy_crds.podtemplate import PodTemplate

MAX_ERRORS_LISTED = 3
"""Maximum number of errors that the message of a refusal lists. The message only counts the others."""
_DECODING = re.compile(r'^Pod in version "[^"]*" cannot be handled as a Pod: (.*)$', re.DOTALL)
_INVALID = re.compile(r'^Pod "[^"]*" is invalid: (.*)$', re.DOTALL)
_UNKNOWN = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_TYPE = re.compile(r"cannot unmarshal (\w+)(?: (\S+))? into Go struct field \w+\.(\S+) of type (\S+)")
_QUANTITY = re.compile(r"[+-]?[0-9.]+([eEinumkKMGTP]*[-+]?[0-9]*)")
"""Pattern of a resource quantity, as the API server's own message gives it."""
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
    """The reason why a pod was not created."""

    message: str
    path: str = ""
    """The field of the job at fault. Empty if the job itself may be correct, for example if a quota or a
    policy refused the pod.
    """
    required: bool = True
    """False if the other children are created without this one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One error in a template."""

    path: str
    """Field of the job, such as `spec.roles[0].template.spec.containers[0].env[1].name`."""
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class TemplatedRole(Protocol):
    """A role of any kind whose pods come from a template."""

    @property
    def name(self) -> str:
        """Return the name of the role."""
        ...

    @property
    def template(self) -> PodTemplate | None:
        """Return the pod template of the role; None if Convoy defines every field."""
        ...


def findings(
    roles: Sequence[TemplatedRole],
    body: Mapping[str, Any],
    role: str,
    message: str,
    causes: Sequence[tuple[str, str]] = (),
) -> list[Finding]:
    """Return the errors of a role's template, from the API server's refusal of a pod made from the
    template.

    `message` and `causes` (pairs of field path and text) come from the refusal's Status object. The result
    is empty if the refusal is not about the pod itself, but about a quota, rights, an admission webhook or
    a policy.
    """
    index = next(number for number, one in enumerate(roles) if one.name == role)
    template = roles[index].template
    made = template.to_dict() if template else {}
    where = f"spec.roles[{index}].template"
    return [
        Finding(f"{where}.{joined(path)}", why)
        if (path := origin(pod_path, body, made)) is not None
        else Finding(where, f"{joined(pod_path)}: {why}" if pod_path else why)
        for pod_path, why in dict.fromkeys(_field_errors(body, message, causes))
    ]


def refusal(found: Sequence[Finding]) -> Refusal:
    """Return all errors of one pod as one refusal. `found` must not be empty."""
    first, *others = found
    more = "".join(f"; {one}" for one in others[: MAX_ERRORS_LISTED - 1])
    rest = len(others) - MAX_ERRORS_LISTED + 1
    return Refusal(f"{first.why}{more}{f'; and {rest} more' if rest > 0 else ''}", first.path)


def _field_errors(
    body: Mapping[str, Any], message: str, causes: Sequence[tuple[str, str]]
) -> Iterator[tuple[tuple[Token, ...], str]]:
    """Yield each field of the pod that is at fault, and what is wrong with it."""
    if match := _INVALID.match(message):
        named = [(tokens(path), why) for path, why in causes if path not in ("", "<nil>")]
        yield from named or [((), match[1])]
    elif match := _DECODING.match(message):
        yield from _decoding_errors(body, match[1])


def _decoding_errors(body: Mapping[str, Any], message: str) -> Iterator[tuple[tuple[Token, ...], str]]:
    """Yield each field for which a body cannot be decoded, and what is wrong with the field.

    Such fields are unknown or duplicate, or have a wrong type or an invalid quantity.
    """
    if unknown := _UNKNOWN.findall(message):
        for which, path in unknown:
            yield tokens(path), "there is no such field" if which == "unknown" else "is set more than once"
    elif match := _TYPE.search(message):
        kind, number, path, wanted = match.groups()
        # The path also contains the names of embedded Go types, which are no fields.
        names = tuple(name for name in path.split(".") if not name[:1].isupper())
        hint = ": put it in quotes" if wanted == "string" and kind in ("number", "bool") else ""
        why = f"must be {_type_in_words(wanted)}, is {number or _KINDS.get(kind, kind)}{hint}"
        whole = wanted.startswith(("[]", "map["))
        yield located(body, names, lambda value: _kind(value) == kind, entries=not whole) or names, why
    elif "quantities must match" in message:
        yield next(_quantities(body), ()), "must be a quantity such as 500m, 2 or 16Gi"
    else:
        yield (), message


def _type_in_words(name: str) -> str:
    """Return a Go type in words. Types of the Kubernetes API keep their names."""
    if name.startswith("[]"):
        return "a list"
    if name.startswith("map["):
        return "an object"
    return _WANTED.get(name) or f"a Kubernetes {name}"


def _kind(value: object) -> str:
    """Return the JSON type of a value, by the name that Go uses."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    names: tuple[tuple[type, str], ...] = ((Mapping, "object"), (str, "string"), (Sequence, "array"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _quantities(body: Mapping[str, Any]) -> Iterator[tuple[Token, ...]]:
    """Yield the fields that should hold a quantity but do not."""

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
