"""Follows one object: it is listed, then watched, and listed anew when the watch has ended."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from convoy.client.api import TIMEOUT_SECONDS, Api
from convoy.client.errors import ApiError, Unreachable, error_of
from convoy_crds.meta import GROUP, VERSION

WATCH_SECONDS = 240
"""The longest watch; then the object is listed anew."""
CONNECT_SECONDS = 10
MIN_TIMEOUT_SECONDS = 1.0
"""For an answer, however little time is left."""
RETRY_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries while the server does not answer or is busy; the last one again and again."""
MIN_ROUND_SECONDS = 1.0
"""A list and its watch take at least so long: one that ends at once is not started anew in a rush."""
_GONE = 410
BUSY = frozenset({429, 500, 502, 503, 504})
"""Statuses of an answer after which the server is asked again."""


def watch_object(
    api: Api,
    plural: str,
    name: str,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Generator[dict[str, Any] | None, None, None]:
    """The object each time it changes, first as it is; None when it is not there. Ends at the deadline.

    `deadline`: by `clock`. What the server cannot answer for a while is asked again until then; then it
    raises the last error. ApiError at once for what it refuses.
    """
    failures, last = 0, None
    while (left := deadline - clock()) > 0:
        started = clock()
        try:
            for body in _list_and_watch(api, plural, name, left):
                failures, last = 0, None
                yield body
                if clock() >= deadline:
                    return
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status not in BUSY:
                raise
            last = error
        rest = MIN_ROUND_SECONDS - (clock() - started)
        if last is not None:
            rest, failures = RETRY_PAUSES[min(failures, len(RETRY_PAUSES) - 1)], failures + 1
        if (rest := min(rest, deadline - clock())) > 0:
            pause(rest)
    if last is not None:
        raise last


def _list_and_watch(api: Api, plural: str, name: str, left: float) -> Iterator[dict[str, Any] | None]:
    """One list and one watch from there on."""
    place = (GROUP, VERSION, api.namespace, plural)
    chosen = {"field_selector": f"metadata.name={name}"}
    request = api.custom.list_namespaced_custom_object
    found = api.call(
        request, *place, **chosen, _request_timeout=max(MIN_TIMEOUT_SECONDS, min(left, TIMEOUT_SECONDS))
    )
    yield found["items"][0] if found["items"] else None
    seconds = min(math.ceil(left), WATCH_SECONDS)
    try:
        for line in api.lines(
            f"the watch of {plural}/{name}",
            request,
            *place,
            **chosen,
            watch=True,
            resource_version=found["metadata"]["resourceVersion"],
            timeout_seconds=seconds,
            # The server ends it in time; who hears nothing for longer has lost the connection.
            _request_timeout=(CONNECT_SECONDS, max(MIN_TIMEOUT_SECONDS, min(left, seconds + 5.0))),
        ):
            event = json.loads(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise error_of(int(status.get("code", 0)), status.get("reason", ""), json.dumps(status))
            yield None if event["type"] == "DELETED" else event["object"]
    except Unreachable:
        # A watch that breaks off is started anew like one that ends.
        return
    except ApiError as error:
        # So is one whose beginning the server remembers no more.
        if error.status != _GONE:
            raise
