"""T09: many small files are packed."""

from __future__ import annotations

from collections.abc import Iterator

from convoy_controllers.advice.json_values import numbered, text
from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.subject import Subject
from convoy_crds.advice import Severity

MANY = 10_000
SMALL_BYTES = 2**20


def _check(subject: Subject) -> Iterator[Found]:
    facts = subject.training.status.facts if subject.training else None
    for number, one in enumerate(facts.data if facts else ()):
        if one.files <= MANY or one.median_bytes >= SMALL_BYTES:
            continue
        yield Found(
            _mount(subject, one.path) or f"status.facts.data[{number}]",
            f"{one.path} has more than {MANY:,} files, half of them below {one.median_bytes:,} bytes: "
            "opening each one costs more than reading it",
            "pack them once with `convoy data pack`, and read the archive with convoy.data.PackedFiles",
        )


def _mount(subject: Subject, path: str) -> str:
    """Return the path of the field that mounts a folder; empty without one."""
    for role in subject.roles:
        for number, one in numbered(role.main.body.get("volumeMounts")):
            if text(one.get("mountPath")).rstrip("/") == path:
                return f"{role.main.path}.volumeMounts[{number}].mountPath"
    return ""


T09 = Rule("T09", "Many small files", Severity.WARNING, _check, static=False)
