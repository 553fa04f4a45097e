"""How long a slot asks for its generation, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from tests.unit.agents.test_rules import UID, plan
from tests.unit.operator.conftest import virtual  # noqa: F401 - a fixture

from convoy_agents.desk import CommitDesk
from convoy_agents.negotiate import PATIENCE_SECONDS, Negotiator
from convoy_agents.pods.state import PodState, Preparing
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier

Run = Callable[[Coroutine[Any, Any, None]], None]

ONE, TWO = Generation(1, 10), Generation(1, 20)
MEMBERS = (plan(1).members[0], replace(plan(1).members[1], pod_uid="other"))
FAST = replace(plan(1), members=MEMBERS)
SLOW = replace(plan(1, slot=1), pod_uid="other", members=(MEMBERS[0], replace(MEMBERS[1], node="one")))


def pod(assignment: Any, *generations: Generation) -> PodState:
    parts = {generation: Preparing(frozenset({0, 1}), None) for generation in generations}
    return PodState(assignment.pod_uid, connected=True, told=1, assignment=assignment, preparing=parts)


class NoMemory:
    """No job keeps anything in memory."""

    async def stands(self, job_uid: str, tier: Tier, generation: Generation) -> None:
        return None

    async def write(self, plan: Any, tier: Tier, generation: Generation, said: Any) -> bool:
        raise AssertionError


class Node:
    """One node with both slots; rank 0 records at once."""

    def __init__(self) -> None:
        self.decided: list[tuple[str, Generation, Verdict]] = []
        self.desk = CommitDesk(self._record, NoMemory())
        self.negotiator = Negotiator(
            "one",
            self.desk,
            None,  # type: ignore[arg-type]  # no other node is asked
            lambda uid, _, generation, verdict, __: self.decided.append((uid, generation, verdict)),
            lambda uid: FAST if uid == UID else SLOW,
        )
        self.desk.advanced(pod(FAST))

    def _record(self, _: str, generation: Generation) -> None:
        asyncio.get_running_loop().call_soon(self.desk.recorded, FAST.job_uid, generation)


def test_slots_meet_although_one_writes_for_longer_than_a_call_is_held(virtual: Run) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        node.negotiator.prepare(pod(FAST, ONE), ONE, None)
        await asyncio.sleep(100)
        assert node.decided == []
        node.negotiator.prepare(pod(SLOW, ONE), ONE, None)
        await asyncio.sleep(5)
        assert sorted(node.decided) == [("other", ONE, Verdict.COMMITTED), (UID, ONE, Verdict.COMMITTED)]

    virtual(work())


def test_patience_ends(virtual: Run) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        node.negotiator.prepare(pod(FAST, ONE), ONE, None)
        await asyncio.sleep(PATIENCE_SECONDS + 1)
        assert node.decided == [(UID, ONE, Verdict.EXPIRED)]

    virtual(work())


def test_what_newer_generations_have_displaced_is_asked_for_no_longer(virtual: Run) -> None:  # noqa: F811
    async def work() -> None:
        node = Node()
        node.negotiator.prepare(pod(FAST, ONE), ONE, None)
        await asyncio.sleep(1)
        node.negotiator.prepare(pod(FAST, TWO), TWO, None)
        node.negotiator.prepare(pod(SLOW, ONE), ONE, None)
        node.negotiator.prepare(pod(SLOW, ONE, TWO), TWO, None)
        await asyncio.sleep(5)
        assert sorted(node.decided) == [
            ("other", ONE, Verdict.STALE),
            ("other", TWO, Verdict.COMMITTED),
            (UID, TWO, Verdict.COMMITTED),
        ]

    virtual(work())
