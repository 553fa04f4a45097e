"""Tests of the state of pod logs, and of reading several logs one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from convoy.client import ApiError, Forbidden, Unreachable
from convoy.client.pod_logs import pod_log, read_in_turn


def source(*lines: str, error: Exception | None = None) -> Callable[[], Iterator[str]]:
    def read() -> Iterator[str]:
        yield from lines
        if error:
            raise error

    return read


CUT, BUSY = Unreachable("cut"), ApiError("busy", 500)
A_IS_CUT, C_IS_BUSY = "cannot read the log of a: cut", "cannot read the log of c: busy"


@pytest.mark.parametrize(
    ("sources", "read", "raised", "reported"),
    [
        ({"a": source("1"), "b": source("2")}, ["1", "2"], None, []),
        ({"a": source("1", error=CUT), "b": source("2")}, ["1", "2"], CUT, [A_IS_CUT]),
        ({"a": source("1"), "b": source("2", error=BUSY)}, ["1", "2"], BUSY, []),
        (
            {"a": source(error=CUT), "b": source("2"), "c": source(error=BUSY)},
            ["2"],
            CUT,
            [A_IS_CUT, C_IS_BUSY],
        ),
    ],
)
def test_the_first_error_is_raised_after_all_logs_are_read(
    sources: Any, read: list[str], raised: Exception | None, reported: list[str]
) -> None:
    found: list[str] = []
    notices: list[str] = []
    error: Exception | None = None
    try:
        for line in read_in_turn(sources, notices.append):
            found.append(line)
    except (Unreachable, ApiError) as caught:
        error = caught
    assert (found, error, notices) == (read, raised, reported)


def test_a_failure_is_reported_before_the_next_log_is_read() -> None:
    notices: list[str] = []
    lines = read_in_turn({"a": source(error=CUT), "b": source("2")}, notices.append)
    assert (next(lines), notices) == ("2", [A_IS_CUT])


def test_forbidden_logs_are_one_error() -> None:
    notices: list[str] = []
    with pytest.raises(Forbidden, match="you may not"):
        next(read_in_turn({"a": source(error=Forbidden("you may not")), "b": source("2")}, notices.append))
    assert notices == []


@pytest.mark.parametrize(
    ("states", "started", "ended"),
    [
        (None, False, False),
        ({"worker": "waiting"}, False, False),
        ({"other": "running"}, False, False),
        ({"worker": "running"}, True, False),
        ({"other": "terminated", "worker": "running"}, True, False),
        ({"worker": "terminated", "other": "running"}, True, True),
    ],
)
def test_a_log_starts_and_ends_with_the_rank_container(
    states: dict[str, str] | None, started: bool, ended: bool
) -> None:
    def state(given: str) -> Any:
        return SimpleNamespace(**{kind: kind == given or None for kind in ("running", "terminated")})

    statuses = states and [SimpleNamespace(name=name, state=state(one)) for name, one in states.items()]
    pod = SimpleNamespace(
        metadata=SimpleNamespace(name="p", uid="u", annotations=None),
        spec=SimpleNamespace(containers=[SimpleNamespace(name="other"), SimpleNamespace(name="worker")]),
        status=SimpleNamespace(container_statuses=statuses),
    )
    nobody: Any = None
    found = pod_log(nobody, pod)
    assert (found.uid, found.name, found.started, found.ended) == ("u", "p", started, ended)
