"""Text formats of numbers, times and links."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from urllib.parse import quote

from convoy_crds.meta import Condition
from convoy_crds.summaries import age

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)
"""Matches control characters, characters without width, and marks that change the writing direction. Such
characters can make a text look like a different text.
"""

_CUT = " ..."
"""End of a message that the operator has cut."""
_ACCOUNT = "system:serviceaccount:"


def visible(text: str) -> str:
    """Return the text with a visible mark in place of each invisible character. Invisible characters in an
    object's text could deceive the user.
    """
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def account(user: str) -> str:
    """Return a short user name: `namespace/name` for a ServiceAccount."""
    namespace, _, name = user.removeprefix(_ACCOUNT).partition(":")
    return f"{namespace}/{name}" if user.startswith(_ACCOUNT) and name else user


def shortened(text: str, limit: int = 400) -> str:
    """Return the text with at most `limit` characters. The middle is left out, because a message ends with
    what to do.
    """
    if len(text) <= limit:
        return text
    end = limit // 3
    return f"{text[: limit - end - 3]} … {text[-end:]}"


def reason_text(reason: str, message: str, conditions: Iterable[Condition]) -> str:
    """Return a status's reason with its message. A long `status.message` is cut; a condition with the same
    reason has the whole message.
    """
    if message.endswith(_CUT):
        start = message.removesuffix(_CUT)
        whole = (one.message for one in conditions if one.reason == reason and one.message.startswith(start))
        message = next(whole, message)
    return f"{reason}: {message}" if message else reason


def ranges(numbers: Iterable[int]) -> str:
    """Return the numbers as ranges, such as `0-3, 7`."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in found)


def duration(seconds: float) -> str:
    """Return a duration in at most two units: `42 s`, `7 min 5 s`, `3 h 20 min`, `2 d 4 h`."""
    seconds = max(0.0, seconds)
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if seconds >= 10 or whole == seconds else f"{seconds:.1f} s"
    for long, long_name, short, short_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= long:
            rest = whole % long // short
            return (
                f"{whole // long} {long_name} {rest} {short_name}" if rest else f"{whole // long} {long_name}"
            )
    rest = whole % 60
    return f"{whole // 60} min {rest} s" if rest else f"{whole // 60} min"


def ago(since: datetime | None, now: datetime) -> str:
    """Return the elapsed time as `7m ago`, or a dash if unknown."""
    return f"{age(since, now)} ago" if since is not None else "-"


def until(moment: datetime | None, now: datetime) -> str:
    """Return the remaining time as `in 7m`, a past time as `7m ago`, or a dash if unknown."""
    if moment is None:
        return "-"
    return f"in {age(now, moment)}" if moment - now > timedelta() else ago(moment, now)


def clock(moment: datetime | None) -> str:
    """Return the time in UTC, or a dash if unknown."""
    return f"{moment:%Y-%m-%d %H:%M:%S}Z" if moment else "-"


def figure(value: float | None) -> str:
    """Return a measured value with four significant digits, or a dash if unknown."""
    if value is None:
        return "-"
    if value and (abs(value) >= 1e7 or abs(value) < 1e-3):
        return f"{value:.3e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 node`, `2 nodes`. The default plural is `one` with an `s`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def job_link(namespace: str, name: str) -> str:
    """Return the path of a job's page."""
    return f"/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}"


def serving_link(namespace: str, name: str) -> str:
    """Return the path of a ServingJob's page."""
    return f"/serving/{quote(namespace, safe='')}/{quote(name, safe='')}"


def experiment_link(namespace: str, name: str) -> str:
    """Return the path of an Experiment's page."""
    return f"/experiments/{quote(namespace, safe='')}/{quote(name, safe='')}"


def spot_link(name: str) -> str:
    """Return the path of a SpotPool's page."""
    return f"/spot/{quote(name, safe='')}"


def cluster_link(plural: str, name: str) -> str:
    """Return the path of the page of a cluster-scoped object of the kind with this plural."""
    return f"/cluster/{quote(plural, safe='')}/{quote(name, safe='')}"


def log_link(namespace: str, name: str, rank: int) -> str:
    """Return the path of a rank's log on its job's page."""
    return f"{job_link(namespace, name)}?rank={rank}#logs"


def node_link(name: str) -> str:
    """Return the path of the page of a node, or of hardware without a node."""
    return f"/nodes/{quote(name, safe='')}"
