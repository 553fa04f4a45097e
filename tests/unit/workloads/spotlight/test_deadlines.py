"""No call of the driver to a spot worker, and no other wait of the live workers, lacks a deadline."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

import convoy_workloads
from convoy_workloads.engines.spotlight.live import ray_actors
from convoy_workloads.engines.spotlight.live.ray_actors import (
    CALL_SECONDS,
    JOIN_SECONDS,
    RayCluster,
    Running,
)
from convoy_workloads.ray_cluster.outcomes import Late

ROOT = Path(convoy_workloads.__file__).parent
FOLDERS = (ROOT / "engines/spotlight/live", ROOT / "ray_cluster")
GATE = ROOT / "ray_cluster/outcomes.py"
"""The only module that waits for Ray."""


def endless(source: str, *, gate: bool = False) -> Iterator[str]:
    """Yield each call in `source` that waits without a deadline. `gate`: it may wait for Ray."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        name, given = call.func.attr, len(call.args) + len(call.keywords)
        timed = any(one.arg == "timeout" for one in call.keywords)
        of_ray = ast.unparse(call.func.value) == "ray" and name in ("get", "wait")
        if (
            (of_ray and not (gate and timed))
            or (name in ("get", "wait", "join", "result", "acquire") and not given)
            or (name == "wait_for" and given < 2)
        ):
            yield ast.unparse(call)


def test_no_wait_lacks_a_deadline() -> None:
    files = [one for folder in FOLDERS for one in folder.glob("*.py")]
    assert GATE in files
    found = {one.name: [*endless(one.read_text(), gate=one == GATE)] for one in files}
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "source",
    [
        "ray.get(answer)",
        "ray.get(answer, timeout=1)",
        "ray.wait(answers)",
        "thread.join()",
        "changed.wait_for(ready)",
        "ended.wait()",
        "queue.get()",
        "future.result()",
    ],
)
def test_a_wait_without_a_deadline_is_found(source: str) -> None:
    assert [*endless(source)] == [source]


def test_ray_may_be_waited_for_in_one_module_with_a_deadline_only() -> None:
    assert [*endless("ray.get(answer, timeout=1)", gate=True)] == []
    assert [*endless("ray.get(answer)", gate=True)] == ["ray.get(answer)"]


class Silent:
    """An actor all of whose calls stay without an answer."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: object())


def test_the_driver_gives_silent_actors_up_at_its_deadlines() -> None:
    now = [0.0]

    def outcome(reference: Any, seconds: float) -> Late:
        now[0] += max(0.0, seconds)
        return Late()

    cluster = RayCluster(head=None, recipe=None, _exchange=Silent())  # type: ignore[arg-type]
    cluster.running = {f"spot/{one}": Running("node", Silent(), object()) for one in range(8)}
    cluster.ready = set(cluster.running)
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    with patch.multiple(ray_actors, outcome=outcome, time=clock):
        assert cluster.collect(0.5) == [] and now[0] == 0.5 + CALL_SECONDS
        assert cluster.regroup(4) == JOIN_SECONDS
        cluster.reply({1: "answer"})
        cluster.fit(1)
        assert now[0] == 0.5 + CALL_SECONDS + JOIN_SECONDS
