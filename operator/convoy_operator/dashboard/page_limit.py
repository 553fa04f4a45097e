"""The limit of the pages that are open at the same time."""

from __future__ import annotations


def is_reached(pages: int, own: int, limit: int, limit_each: int) -> bool:
    """Return True if a user with `own` of the `pages` open pages may not open another one.

    `limit` is the maximum number of open pages of all users together, `limit_each` of one user. A user
    may hold at most as many pages as are free. So a user with few pages always finds a free one.
    """
    return own >= min(limit_each, limit - pages)
