"""What a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED = 24
"""At most so many known names are listed where none is near."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'steps'?`, or else what there is; empty when there is nothing to name."""
    names = sorted(known)
    by_lower = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    if near:
        return f"; did you mean {by_lower[near[0]]!r}?"
    return f"; there are: {', '.join(names)}" if names and len(names) <= LISTED else ""
