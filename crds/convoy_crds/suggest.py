"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED = 24
"""Most known names in a suggestion that lists them all."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'steps'?` if a known name is similar, or else a list of the known names.

    Return an empty text if there are no known names, or more than `LISTED`.
    """
    names = sorted(known)
    by_lower = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    if near:
        return f"; did you mean {by_lower[near[0]]!r}?"
    return f"; there are: {', '.join(names)}" if names and len(names) <= LISTED else ""
