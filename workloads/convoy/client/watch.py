"""Watches one object. It lists the object, then watches it, and repeats both when the watch ends."""

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
"""Maximum duration of one watch in seconds. After it, the object is listed again."""
CONNECT_SECONDS = 10
MIN_TIMEOUT_SECONDS = 1.0
"""Minimum number of seconds to wait for a response, even if the deadline is nearer."""
RETRY_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds to wait before each retry while the server does not respond or is busy. The last value is
repeated.
"""
MIN_ROUND_SECONDS = 1.0
"""Minimum number of seconds for one list and watch together. It prevents a tight loop if a watch ends at
once.
"""
_GONE = 410
BUSY = frozenset({429, 500, 502, 503, 504})
"""HTTP statuses after which a request is retried."""


def watch_object(
    api: Api,
    plural: str,
    name: str,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Generator[dict[str, Any] | None, None, None]:
    """Yield the object in its current state, and then again after each change. Yield None while the object
    does not exist. End at the deadline.

    `deadline` is a time of `clock`. While the server does not respond or is busy, requests are retried
    until the deadline, and then the last error is raised. Raises ApiError at once if the server refuses a
    request.
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
    """List the object once and yield it. Then watch the object from the listed state on and yield each
    change.
    """
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
            # The server ends the watch after `seconds`. If it is silent for longer, the connection is lost.
            _request_timeout=(CONNECT_SECONDS, max(MIN_TIMEOUT_SECONDS, min(left, seconds + 5.0))),
        ):
            event = json.loads(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise error_of(int(status.get("code", 0)), status.get("reason", ""), json.dumps(status))
            yield None if event["type"] == "DELETED" else event["object"]
    except Unreachable:
        # End here. The caller restarts an interrupted watch in the same way as an ended one.
        return
    except ApiError as error:
        # If the resourceVersion is too old (410 Gone), end here, because the caller then lists the object
        # again.
        if error.status != _GONE:
            raise
