"""Tests of the simulations in child processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import pytest

from convoy_controllers.astrasim.parameters import AlgorithmKind
from convoy_controllers.astrasim.step.shape import Reduction, StepShape
from convoy_controllers.keys import Key
from convoy_controllers.placement.forecast.case import Case
from convoy_operator.forecasts import simulator
from convoy_operator.forecasts.simulator import CHILD, Simulator

KEY, OTHER = Key("TrainingJob", "ns", "one"), Key("TrainingJob", "ns", "two")
ECHO = "import sys\nfor line in sys.stdin: print('{\"step_ms\": %d}' % len(line), flush=True)"
"""A child that answers at once."""
HANGS = "import sys, time\nprint('{\"step_ms\": 7}', flush=True)\ntime.sleep(600)"
"""A child that answers one case only."""


def case(size: int) -> Case:
    shape = StepShape((Reduction(0.01, size),))
    return Case(shape, AlgorithmKind.RING, (0, 1), (0, 0), (1.0, 1.0), ())


async def played(
    requests: Sequence[tuple[Key, Sequence[Case]]], command: Sequence[str] = CHILD, seconds: float = 60.0
) -> tuple[Simulator, list[Key]]:
    """Return the simulator after all requests, and the jobs that it has woken."""
    woken: list[Key] = []
    done = asyncio.Event()

    def wake(key: Key) -> None:
        woken.append(key)
        if len(woken) == len({key for key, _ in requests}):
            done.set()

    found = Simulator(wake, command, seconds)
    for key, cases in requests:
        found.request(key, cases)
    task = asyncio.create_task(found.run())
    try:
        async with asyncio.timeout(60):
            await done.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return found, woken


def python(text: str) -> Sequence[str]:
    return (sys.executable, "-c", text)


async def test_the_child_predicts_what_this_process_predicts() -> None:
    cases = [case(1 << 20), case(1 << 24)]
    found, woken = await played([(KEY, cases)])
    assert woken == [KEY]
    for one in cases:
        assert found.results[one].step_ms == pytest.approx(one.predict().seconds * 1e3)
        assert "node-" in found.results[one].bottleneck and not found.results[one].failure


async def test_a_step_that_cannot_be_simulated_has_the_reason() -> None:
    bad = Case(
        StepShape((Reduction(0.0, 8),)), AlgorithmKind.HALVING_DOUBLING, (0, 1, 2), (0,) * 3, (1.0,) * 3, ()
    )
    found, _ = await played([(KEY, [bad, case(1 << 20)])])
    assert "halving" in found.results[bad].failure and found.results[case(1 << 20)].step_ms > 0


async def test_jobs_share_results_and_a_later_request_replaces_an_earlier_one() -> None:
    found, woken = await played(
        [(KEY, [case(1)]), (OTHER, [case(2)]), (KEY, [case(2), case(3)])], python(ECHO)
    )
    assert woken == [KEY, OTHER] and set(found.results) == {case(2), case(3)}


async def test_a_child_that_hangs_is_killed_and_its_results_so_far_count() -> None:
    found, _ = await played([(KEY, [case(1), case(2)])], python(HANGS), seconds=2.0)
    assert found.results[case(1)].step_ms == 7
    assert found.results[case(2)].failure == "the simulation has not ended after 2 s"


@pytest.mark.parametrize(
    ("command", "why"),
    [(python("raise SystemExit(3)"), "exit status 3"), (("/no/such/program",), "has not started")],
)
async def test_a_child_that_fails_is_no_failure_of_the_operator(command: Sequence[str], why: str) -> None:
    found, woken = await played([(KEY, [case(1)])], command)
    assert why in found.results[case(1)].failure and woken == [KEY]


async def test_the_queue_and_the_results_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "QUEUED", 1)
    monkeypatch.setattr(simulator, "REMEMBERED", 2)
    found, woken = await played([(KEY, [case(size) for size in range(1, 5)])], python(ECHO))
    assert list(found.results) == [case(3), case(4)]
    found.request(KEY, [case(9)])
    found.request(OTHER, [case(9)])
    found.request(KEY, [case(3)])
    assert not found._waiting
    assert woken == [KEY]
