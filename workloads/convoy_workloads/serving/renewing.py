"""A call in another thread, so that a rank shows that it is alive while the call takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

RENEW_SECONDS = 0.25
"""Seconds between two calls of `renew`."""
T = TypeVar("T")
Renew = Callable[[], None]


def renewing(renew: Renew, function: Callable[[], T], name: str = "convoy-load") -> T:
    """Call a function in another thread named `name`. Call `renew` as long as the function runs. Return its
    result, or raise its error.
    """
    results: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # The caller raises it in its own thread.
            failed.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    while thread.is_alive():
        renew()
        thread.join(RENEW_SECONDS)
    if failed:
        raise failed[0]
    return results[0]
