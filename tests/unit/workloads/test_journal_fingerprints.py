from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.runtime.journal import fingerprints
from convoy_workloads.runtime.journal.fingerprints import EndFingerprints, fingerprint_of
from convoy_workloads.runtime.journal.partition import partition

KINDS = [torch.float32, torch.bfloat16, torch.int64, torch.uint8]


def made(kind: torch.dtype, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randint(0, 100, (size,), generator=generator).to(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1, 7, 1024, 8192, 50_001])
def test_equal_bits_have_equal_fingerprints(kind: torch.dtype, size: int) -> None:
    one = made(kind, size)
    assert fingerprint_of(one) == fingerprint_of(one.clone())
    assert fingerprint_of(torch.cat([made(kind, 3), one])[3:]) == fingerprint_of(one), "wherever they lie"


@given(st.sampled_from(KINDS), st.integers(1, 60_000), st.data())
def test_one_changed_element_changes_the_fingerprint(
    kind: torch.dtype, size: int, data: st.DataObject
) -> None:
    one = made(kind, size)
    other = one.clone()
    other[data.draw(st.integers(0, size - 1))] += data.draw(st.integers(1, 5))
    assert fingerprint_of(one) != fingerprint_of(other)


@given(st.integers(0, 29_999), st.integers(0, 29_999))
def test_two_swapped_elements_change_the_fingerprint(first: int, second: int) -> None:
    one = torch.arange(30_000, dtype=torch.float32)
    other = one.clone()
    other[first], other[second] = one[second], one[first]
    assert (fingerprint_of(one) == fingerprint_of(other)) is (first == second)


def test_the_fingerprint_depends_on_shape_and_type() -> None:
    zeros = torch.zeros(8192)
    found = [zeros, zeros.view(2, -1), zeros.to(torch.int32), zeros[1:], torch.full((8192,), -0.0)]
    assert len({fingerprint_of(one) for one in found}) == len(found)


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    """Another process, perhaps with another version of torch, compares the fingerprint, so its value must
    never change.
    """
    assert fingerprint_of(torch.arange(10_000, dtype=torch.int64)) == "1e1af48be8186917b1615db210b4f9b4"


@pytest.mark.parametrize("world", [1, 3])
def test_all_parameters_are_checked_in_turn(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "MIN_CHECKED_BYTES", 1)
    parameters = {f"p{number}": torch.ones(64 * (number + 1), 4) for number in range(12)}
    for rank in range(world):
        owned = partition(parameters, rank, world)
        ends = EndFingerprints(owned)
        turns = [[(name, tuple(offsets)) for name, offsets, *_ in ends.facts()] for _ in range(len(owned))]
        assert {one for turn in turns for one in turn} == {(one.name, one.box[0]) for one in owned}
        if world == 1:
            assert all(len(turn) < len(owned) for turn in turns)
