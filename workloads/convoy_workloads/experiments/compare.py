"""Compares the stored files of an Experiment with their re-computation.

Another release may word its sentences differently. So a difference of words alone is told apart from one of
figures: numbers, verdicts, and results of controls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from convoy_crds.experiment_status import Verdict

TOLERANCE = 1e-8
"""Largest relative difference of two numbers that counts as equal: processors round differently."""
MAX_SHOWN = 200
"""Maximum number of characters of a value in a message."""
_UNCHECKED = frozenset({"libraries", "digest"})
"""Fields that describe the machine of the analysis, and digests, which are compared with the stored files.
"""
_SENTENCE = re.compile(
    r"void|(hypotheses\.\d+\.(reason|sensitivity)|controls\.\d+\.message|(flags|deviations|recorded)\.\d+)"
)
"""Paths of the sentences in `result.json`."""
_FIGURE = re.compile(rf"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\b(?:{'|'.join(Verdict)}|passed|FAILED)\b")
_PLOT = re.compile(r"<svg.*?</svg>", re.DOTALL)
_ROW_STARTS = ("|", "<tr>", "<table>")
"""Beginnings of the lines of a report that are rows of a table."""


@dataclass(frozen=True)
class Difference:
    """A difference between a stored file and its re-computation."""

    file: str
    path: str
    """Field of the file, such as `hypotheses.0.effect`; empty for the whole file."""
    stored: Any
    computed: Any
    words_only: bool = False
    """True if all figures agree, so that the two say the same in other words."""

    def __str__(self) -> str:
        where = f"{self.file}: {self.path}" if self.path else self.file
        return f"{where}: stored {_shown(self.stored)}, computed {_shown(self.computed)}"


def compare_json(file: str, stored: Any, computed: Any, path: str = "") -> Iterator[Difference]:
    """Yield the differences of two JSON values."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        for name in sorted((stored.keys() | computed.keys()) - _UNCHECKED):
            inner = f"{path}.{name}" if path else name
            yield from compare_json(file, stored.get(name), computed.get(name), inner)
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for number, (one, other) in enumerate(zip(stored, computed, strict=True)):
            yield from compare_json(file, one, other, f"{path}.{number}")
    elif not _equal(stored, computed):
        yield Difference(file, path, stored, computed, _is_reworded(path, stored, computed))


def compare_report(file: str, stored: bytes, computed: bytes) -> Iterator[Difference]:
    """Yield the first difference of two reports. Plots are left out, because they depend on the version of
    the plotting library.
    """
    ours, theirs = _lines(stored), _lines(computed)
    if ours != theirs:
        words_only = _figures(_rows(ours)) == _figures(_rows(theirs))
        yield Difference(file, "", *_first_difference(ours, theirs), words_only)


def _lines(content: bytes) -> list[str]:
    return _PLOT.sub("", content.decode(errors="replace")).splitlines()


def _rows(lines: list[str]) -> str:
    return "\n".join(line for line in lines if line.startswith(_ROW_STARTS))


def _figures(text: str) -> list[str]:
    return _FIGURE.findall(text)


def _is_reworded(path: str, stored: Any, computed: Any) -> bool:
    """Return True for two sentences of `result.json` with the same figures."""
    texts = isinstance(stored, str) and isinstance(computed, str)
    return texts and bool(_SENTENCE.fullmatch(path)) and _figures(stored) == _figures(computed)


def _equal(stored: Any, computed: Any) -> bool:
    if _is_number(stored) and _is_number(computed):
        return math.isclose(stored, computed, rel_tol=TOLERANCE, abs_tol=1e-300)
    return type(stored) is type(computed) and bool(stored == computed)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _first_difference(stored: list[str], computed: list[str]) -> tuple[str, str]:
    """Return the first lines that differ."""
    for one, other in zip(stored, computed, strict=False):
        if one != other:
            return one, other
    return f"{len(stored)} lines", f"{len(computed)} lines"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ..."
