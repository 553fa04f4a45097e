"""T03: many near-identical jobs are one sweep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.subject import Subject
from convoy_crds.advice import Severity
from convoy_crds.summaries import shorten_list

LEAST = 5
"""Number of near-identical jobs that should be one sweep."""
WINDOW_SECONDS = 600.0
"""Jobs that were created within this time belong together."""
MAX_NAMES = 4
_VALUES = frozenset({"params", "env", "args", "command"})
"""Fields of a job whose values are its program's. Near-identical jobs differ only in these."""
_OWN = frozenset({"suspend", "lint"})
"""Fields of a spec that say nothing about what the job does."""


def created_near(first: datetime | None, other: datetime | None) -> bool:
    """Return True if two jobs were created within WINDOW_SECONDS. Jobs that do not exist yet will be."""
    return first is None or other is None or abs((other - first).total_seconds()) <= WINDOW_SECONDS


def shape(spec: Mapping[str, Any]) -> str:
    """Return a digest of a job's spec without the values that its program gets. Near-identical jobs have the
    same shape.
    """
    kept = {name: value for name, value in spec.items() if name not in _OWN}
    return hashlib.sha256(json.dumps(_shaped(kept), sort_keys=True, default=str).encode()).hexdigest()


@lru_cache(maxsize=4096)
def cached_shape(uid: str, generation: int, spec: Spec) -> str:
    """Return the shape of an object's spec. A generation never has another spec."""
    return shape(spec.body)


class Spec:
    """A spec as the argument of `cached_shape`: all specs are equal, so only uid and generation count."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec)

    def __hash__(self) -> int:
        return 0


def _shaped(value: Any, blank: bool = False) -> Any:
    """Return a copy of a JSON value. With `blank`, numbers and texts are replaced, and names are kept."""
    if isinstance(value, Mapping):
        return {str(key): _shaped(one, blank or key in _VALUES) for key, one in value.items()}
    if isinstance(value, list):
        return [_shaped(one, blank) for one in value]
    return "" if blank else value


def _check(subject: Subject) -> Iterator[Found]:
    others = subject.around.similar
    if len(others) + 1 < LEAST or subject.repeated:
        return
    yield Found(
        "spec",
        f"{len(others) + 1} jobs differ only in the values for their program: "
        f"{shorten_list([subject.name, *others], MAX_NAMES)}",
        "replace them by one Experiment with spec.sweep, which runs all combinations, limits how many run at "
        "a time, and reports one table",
    )


T03 = Rule("T03", "Many near-identical jobs", Severity.WARNING, _check)
