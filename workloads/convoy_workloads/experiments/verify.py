"""The re-computation of a finished Experiment from its files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_crds.experiment_hash import HASH_PREFIX, digest
from convoy_workloads.experiments.artefact import (
    HTML_FILE,
    PLAN_STATEMENT,
    RESULT_STATEMENT,
    result_files,
)
from convoy_workloads.experiments.statement import DATA_FILE, PLAN_FILE, RESULT_FILE

LARGEST_WHOLE = 2**53 - 1
"""Largest whole number with a canonical form of its own. RFC 8785 writes larger floats like whole numbers."""
TOLERANCE = 1e-8
"""Largest relative difference of two numbers that counts as equal: processors round differently."""
_UNCHECKED = frozenset({"libraries", "digest"})
"""Fields that describe the machine of the analysis, and digests, which are compared with the stored files.
"""
_PLOT = re.compile(rb"<svg.*?</svg>", re.DOTALL)


@dataclass(frozen=True)
class Difference:
    """A difference between a stored file and its re-computation."""

    file: str
    path: str
    """Field of the file, such as `hypotheses.0.effect`; empty for the whole file."""
    stored: Any
    computed: Any

    def __str__(self) -> str:
        where = f"{self.file}: {self.path}" if self.path else self.file
        return f"{where}: stored {self.stored!r}, computed {self.computed!r}"


def verify(files: Mapping[str, bytes], expected: str = "", plan: str = "") -> list[Difference]:
    """Compute everything but the plots again from `plan.json` and `data.json`, and return the differences.

    `expected` and `plan`: digest of the result and hash of the plan in the Experiment's status; empty to
    compare the files alone. Raises ValueError if the plan or the data cannot be read.
    """
    registered, data = _read(files, PLAN_FILE), _read(files, DATA_FILE)
    _, computed = result_files(registered, data["blocks"], data["tuning"], drawn=False)
    found = [
        *_digests(files, {PLAN_FILE: plan, RESULT_FILE: expected}, "the status"),
        *_digests(files, _stated(files, PLAN_STATEMENT), PLAN_STATEMENT),
        *_digests(files, _stated(files, RESULT_STATEMENT), RESULT_STATEMENT),
    ]
    for name, content in computed.items():
        if name not in files:
            found.append(Difference(name, "", "no such file", "a file"))
        elif name.endswith(".json"):
            found += _compare(name, "", _read(files, name), _parsed(content))
        elif _text(name, files[name]) != _text(name, content):
            found.append(Difference(name, "", *_first_difference(files[name], content)))
    return found


def _read(files: Mapping[str, bytes], name: str) -> Any:
    if name not in files:
        raise ValueError(f"{name} is missing: without it nothing can be computed again")
    try:
        return _parsed(files[name])
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from error


def _parsed(content: bytes) -> Any:
    """Return a JSON value, in which whole numbers above LARGEST_WHOLE are floats."""
    return json.loads(content, parse_int=_whole)


def _whole(digits: str) -> int | float:
    number = int(digits)
    return number if abs(number) <= LARGEST_WHOLE else float(digits)


def _stated(files: Mapping[str, bytes], statement: str) -> dict[str, str]:
    """Return the digests in a stored statement by file; nothing if there is no such statement."""
    if statement not in files:
        return {}
    subjects = _read(files, statement).get("subject", ())
    return {one["name"]: HASH_PREFIX + one["digest"]["sha256"] for one in subjects}


def _digests(files: Mapping[str, bytes], wanted: Mapping[str, str], source: str) -> Iterator[Difference]:
    """Yield the stored files whose digest is not the one that `source` names."""
    for name, one in wanted.items():
        if one and name in files and (actual := digest(_read(files, name))) != one:
            yield Difference(name, f"digest in {source}", one, actual)


def _compare(file: str, path: str, stored: Any, computed: Any) -> Iterator[Difference]:
    """Yield the differences of two JSON values."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        for name in sorted((stored.keys() | computed.keys()) - _UNCHECKED):
            inner = f"{path}.{name}" if path else name
            yield from _compare(file, inner, stored.get(name), computed.get(name))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for number, (one, other) in enumerate(zip(stored, computed, strict=True)):
            yield from _compare(file, f"{path}.{number}", one, other)
    elif not _equal(stored, computed):
        yield Difference(file, path, stored, computed)


def _equal(stored: Any, computed: Any) -> bool:
    if _is_number(stored) and _is_number(computed):
        return math.isclose(stored, computed, rel_tol=TOLERANCE, abs_tol=1e-300)
    return type(stored) is type(computed) and bool(stored == computed)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(name: str, content: bytes) -> bytes:
    """Return a report without its plots, which depend on the version of the plotting library."""
    return _PLOT.sub(b"", content) if name == HTML_FILE else content


def _first_difference(stored: bytes, computed: bytes) -> tuple[str, str]:
    """Return the first lines that differ."""
    ours, theirs = (
        stored.decode(errors="replace").splitlines(),
        computed.decode(errors="replace").splitlines(),
    )
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return one[:200], other[:200]
    return f"{len(ours)} lines", f"{len(theirs)} lines"
