"""The limit of the pages that are open at the same time."""

from __future__ import annotations


def is_reached(pages: int, own: int, limit: int, limit_each: int) -> bool:
    """Return True if a reader with `own` of the `pages` open pages may not open another one.

    `limit` is the maximum number of open pages of all readers together, `limit_each` of one reader. A reader
    may hold at most as many pages as are free. So a reader with few pages always finds a free one.
    """
    return own >= min(limit_each, limit - pages)
