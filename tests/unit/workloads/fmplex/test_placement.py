"""Tests of the placement: by backbone first, then by memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_workloads.engines.fmplex.placement import Demand, Unplaceable, place

MIB = 2**20


def used(
    demands: Sequence[Demand], backbones: Mapping[str, int], found: Mapping[str, int]
) -> dict[int, tuple[int, set[str]]]:
    """Return the bytes and the backbones of each pod."""
    pods: dict[int, tuple[int, set[str]]] = {}
    for one in demands:
        size, held = pods.get(found[one.task], (0, set()))
        size += one.bytes + (0 if one.backbone in held else backbones[one.backbone])
        pods[found[one.task]] = (size, held | {one.backbone})
    return pods


def test_tasks_with_equal_backbones_share_a_pod() -> None:
    demands = [Demand(f"{kind}{number}", kind, MIB) for number in range(4) for kind in ("text", "image")]
    found = place(demands, {"text": 50 * MIB, "image": 40 * MIB}, [1000 * MIB] * 2)
    assert {found[f"text{number}"] for number in range(4)} == {0}
    assert {found[f"image{number}"] for number in range(4)} == {1}


def test_one_pod_holds_everything() -> None:
    demands = [Demand("a", "text", MIB), Demand("b", "image", MIB)]
    assert place(demands, {"text": MIB, "image": MIB}, [4 * MIB]) == {"a": 0, "b": 0}


def test_a_full_pod_gets_no_further_task() -> None:
    demands = [Demand(f"t{number}", "text", 10 * MIB) for number in range(6)]
    found = place(demands, {"text": 50 * MIB}, [90 * MIB] * 2)
    assert sorted(found.values()) == [0, 0, 0, 0, 1, 1]


def test_running_tasks_stay_and_a_further_task_goes_to_its_backbone() -> None:
    backbones = {"text": 50 * MIB, "image": 10 * MIB}
    demands = [Demand("a", "image", MIB), Demand("b", "text", MIB), Demand("late", "image", MIB)]
    assert place(demands, backbones, [200 * MIB] * 2, {"a": 1, "b": 0})["late"] == 1
    assert place(demands, backbones, [200 * MIB] * 2, {"a": 0, "b": 1})["late"] == 0


def test_an_error_names_the_task_and_the_missing_memory() -> None:
    with pytest.raises(Unplaceable, match="task 'big': no pod has room for it; 3 MiB are missing"):
        place([Demand("big", "text", 3 * MIB)], {"text": 10 * MIB}, [10 * MIB, 2 * MIB])


@settings(max_examples=60, deadline=None)
@given(
    tasks=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 30)), min_size=1, max_size=12),
    room=st.lists(st.integers(60, 400), min_size=1, max_size=4),
)
def test_memory_is_never_exceeded(tasks: list[tuple[str, int]], room: list[int]) -> None:
    backbones = {"x": 50, "y": 20, "z": 5}
    demands = [Demand(f"t{number}", digest, size) for number, (digest, size) in enumerate(tasks)]
    needed = sum(backbones[digest] for digest, _ in {(digest, 0) for digest, _ in tasks})
    needed += sum(size for _, size in tasks)
    try:
        found = place(demands, backbones, room)
    except Unplaceable:
        assert needed > max(room)
        return
    assert set(found) == {one.task for one in demands}
    assert place(list(reversed(demands)), backbones, room).keys() == found.keys()
    pods = used(demands, backbones, found)
    assert all(size <= room[pod] for pod, (size, _) in pods.items())
    for digest, size in backbones.items():
        group = size + sum(own for kind, own in tasks if kind == digest)
        copies = sum(digest in held for _, held in pods.values())
        if len({kind for kind, _ in tasks}) == 1 and group <= max(room):
            assert copies <= 1
