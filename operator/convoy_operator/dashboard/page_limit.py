"""The limit of the pages that are open at the same time."""

from __future__ import annotations


def is_reached(pages: int, own: int, limit: int, limit_each: int) -> bool:
    """Return True if a user who has `own` of the `pages` open pages may not open another one.

    `limit` is the maximum number of open pages of all users together, `limit_each` of one user. A user may
    open another page only if `own` is less than `limit - pages`, the number of pages that all users
    together may still open. So no user can use up the limit, and a user with few pages can open another
    one.
    """
    return own >= min(limit_each, limit - pages)
