"""Makes a differing case small enough to be read."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.oracle.hpa.comparison import Difference, differences
from e2e.oracle.hpa.program import Case, results
from e2e.oracle.hpa.suites import Suite

MAX_ROUNDS = 300
_OPTIONAL = frozenset(
    {
        "behavior", "scaleUp", "scaleDown", "selectPolicy", "stabilizationWindowSeconds", "tolerance",
        "policies", "minReplicas", "failReads", "failWrites", "deleting", "requests",
        "container",
    }
)  # fmt: skip
"""Fields that a case can do without."""
_LISTS = frozenset({"pods", "containers", "policies", "metrics", "values"})
"""Lists that can lose entries, but not all of them."""
_INHERITED = ("spec", "specReplicas", "pods")
"""Fields that hold until a later step changes them."""


def minimised(suite: Suite, program: Path, found: Difference) -> Difference:
    """Return a smaller case that differs too. It loses one part at a time, as long as it still differs."""
    for _ in range(MAX_ROUNDS):
        candidates = list(smaller(found.case))
        theirs = results(program, suite.name, candidates)
        following = next(differences(suite, candidates, theirs), None)
        if following is None:
            break
        found = following
    return found


def smaller(case: Case) -> Iterator[Case]:
    """Yield cases with one part less, those that lose the most first."""
    steps = case.get("steps", [])
    if len(steps) > 1:
        yield {**case, "steps": steps[: len(steps) // 2]}
        yield {**case, "steps": steps[:-1]}
        for index in range(len(steps) - 1):
            kept = {name: steps[index][name] for name in _INHERITED if name in steps[index]}
            yield {**case, "steps": [*steps[:index], {**kept, **steps[index + 1]}, *steps[index + 2 :]]}
    for path in _removable({name: value for name, value in case.items() if name != "flags"}, ()):
        reduced = copy.deepcopy(case)
        parent: Any = reduced
        for part in path[:-1]:
            parent = parent[part]
        del parent[path[-1]]
        yield reduced


def _removable(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the parts that a case can do without."""
    if isinstance(value, dict):
        for name, child in value.items():
            if name in _OPTIONAL and not (name == "requests" and "sidecar" in value):
                yield (*path, name)
            yield from _removable(child, (*path, name))
    elif isinstance(value, list):
        if path and path[-1] in _LISTS and len(value) > 1:
            yield from ((*path, index) for index in range(len(value)))
        for index, child in enumerate(value):
            yield from _removable(child, (*path, index))
