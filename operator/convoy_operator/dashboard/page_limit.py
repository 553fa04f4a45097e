"""How many pages may be open at a time."""

from __future__ import annotations


def is_reached(pages: int, own: int, most: int, each: int) -> bool:
    """Whether another page has no room: `pages` are open, `own` of them are the reader's.

    A reader may have as many as are free, and never more than `each`: so some are left for whoever has none,
    however many the others ask for.
    """
    return own >= min(each, most - pages)
