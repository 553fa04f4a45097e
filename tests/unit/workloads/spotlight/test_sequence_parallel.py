"""Groups of workers: equal results for each degree, and refusal of messages of an old epoch."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from convoy_workloads.engines.spotlight.learning.policy import PicturePolicy
from convoy_workloads.engines.spotlight.live import groups, sequence_parallel
from convoy_workloads.engines.spotlight.live.groups import (
    Batch,
    Group,
    GroupBroken,
    Membership,
    Part,
    fitting_degree,
    form,
)
from convoy_workloads.engines.spotlight.live.sequence_parallel import GroupPolicy, compute_part

NAMES = ("a", "b", "c", "d")


def policy() -> PicturePolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return PicturePolicy(size=64, prompts=4, width=32, heads=4, layers=2)


@dataclass
class Given:
    future: Future[Any]

    def get(self, seconds: float) -> Any:
        try:
            return self.future.result(seconds)
        except TimeoutError as error:
            raise GroupBroken("late") from error


class Peers:
    """Members in one process, each with a thread."""

    def __init__(self, members: dict[str, Membership], pool: ThreadPoolExecutor, absent: str = "") -> None:
        self.members, self.pool, self.absent = members, pool, absent

    def share(self, member: str, epoch: int, batch: Batch) -> Given:
        if member == self.absent:
            return Given(Future())
        return Given(self.pool.submit(compute_part, policy(), batch, self.members[member], epoch))

    def send(self, member: str, part: Part) -> None:
        self.members[member].receive(part)


def leader(
    degree: int, pool: ThreadPoolExecutor, absent: str = ""
) -> tuple[GroupPolicy, dict[str, Membership]]:
    members = {name: Membership(name) for name in NAMES[:degree]}
    peers = Peers(members, pool, absent)
    for one in members.values():
        assert one.join(Group(1, NAMES[:degree]), peers)
    return GroupPolicy(0, policy(), members["a"], itertools.count().__next__), members


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(4) as found:
        yield found


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(16, 64, generator=generator), torch.full((16,), 0.5), torch.arange(16) % 4


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_every_degree_gives_the_same_velocities(degree: int, pool: ThreadPoolExecutor) -> None:
    grouped, _ = leader(degree, pool)
    with torch.no_grad():
        want, found = policy()(*inputs()), grouped(*inputs())
    assert grouped.broken == 0
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=0, atol=2e-6)


def test_a_group_without_a_member_is_broken_and_its_leader_computes_alone(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_parallel, "PART_SECONDS", 0.05)
    grouped, _ = leader(2, pool, absent="b")
    with torch.no_grad():
        np.testing.assert_array_equal(grouped(*inputs()).numpy(), policy()(*inputs()).numpy())
    assert grouped.broken == 1


def test_messages_of_an_old_epoch_are_refused() -> None:
    one = Membership("a")
    empty = np.zeros((1, 1, 1, 1), np.float32)
    assert one.join(Group(3, ("a", "b")), None)
    assert not one.join(Group(3, ("a",)), None) and not one.join(Group(2, ("a",)), None)
    assert not one.join(Group(4, ("b",)), None), "a group without this worker"
    assert not one.receive(Part(2, 0, 0, 1, empty, empty)) and one.refused == 1
    assert one.receive(Part(3, 0, 0, 1, empty, empty))
    with pytest.raises(GroupBroken, match="epoch 2 is over: a is in epoch 3"):
        one.check(2)


def test_a_regroup_frees_a_member_that_waits_for_a_part(pool: ThreadPoolExecutor) -> None:
    _, members = leader(2, pool)
    empty = np.zeros((1, 1, 1, 1), np.float32)
    waiting = pool.submit(members["a"].gather, Part(1, 0, 0, 0, empty, empty), 30.0)
    assert members["a"].join(Group(2, ("a",)), None)
    with pytest.raises(GroupBroken, match="the group has changed"):
        waiting.result(10)


def test_the_parts_of_a_group_that_never_ends_are_bounded() -> None:
    one = Membership("a")
    empty = np.zeros((1, 1, 1, 1), np.float32)
    assert one.join(Group(1, ("a", "b")), None)
    for call in range(3 * groups.MAX_PARTS):
        one.receive(Part(1, call, 0, 1, empty, empty))
    assert len(one._parts) <= groups.MAX_PARTS


@pytest.mark.parametrize(
    ("workers", "requests", "degree"),
    [(8, 8, 1), (8, 5, 1), (8, 4, 2), (8, 2, 4), (8, 1, 4), (8, 0, 4), (1, 1, 1), (0, 3, 1)],
)
def test_workers_compute_together_only_if_there_is_too_little_work(
    workers: int, requests: int, degree: int
) -> None:
    assert fitting_degree(workers, requests, [1, 2, 4]) == degree


@pytest.mark.parametrize(
    ("degree", "degrees"), [(1, [1, 1, 1, 1, 1]), (2, [2, 1, 2]), (4, [2, 1, 2]), (8, [2, 1, 2])]
)
def test_groups_stay_on_a_node_and_have_powers_of_two(degree: int, degrees: list[int]) -> None:
    formed = form({"one": ["1a", "1b", "1c"], "two": ["2a", "2b"]}, degree, epoch=7)
    assert [one.degree for one in formed] == degrees
    assert all(len({member[0] for member in one.members}) == 1 and one.epoch == 7 for one in formed)
