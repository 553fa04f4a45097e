"""A limit of the pages that are open at a time."""

from __future__ import annotations


def is_reached(pages: int, own: int, most: int, each: int) -> bool:
    """Return True if a reader with `own` of the `pages` open pages may not open another one.

    A reader may open as many pages as are free, and at most `each`. So readers with few pages always find
    free ones, however many others open.
    """
    return own >= min(each, most - pages)
