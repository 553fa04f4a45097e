"""Suggestions for misspelt names in error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED = 24
"""Maximum number of known names in a suggestion that lists all of them."""


def engine_hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown Engine: the name that was meant, or those that exist."""
    names = list(known)
    return suggestion(name, names) if names else "; create it, because there is none yet"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a text such as `; did you mean 'steps'?` if a known name is similar. Otherwise return a text
    that lists the known names.

    Return an empty text if no name is similar and there are no known names, or more than `LISTED`.
    """
    names = sorted(known)
    by_lower = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    if near:
        return f"; did you mean {by_lower[near[0]]!r}?"
    return f"; there are: {', '.join(names)}" if names and len(names) <= LISTED else ""
