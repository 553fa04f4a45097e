"""Tests of the choice of the save with the fewest bytes within the allowed restore time. The figures come
from TierCheck's research, measured on a GPT.
"""

from __future__ import annotations

import pytest

from convoy_workloads.runtime.journal.policy import (
    MAX_STEPS,
    ChainPosition,
    RestoreTimes,
    Tensors,
    choose,
    max_chain_steps,
)

FAST = RestoreTimes(step=1e-6, read=1e12, base=10**12)
PARAMETERS = 1_000_000


def choices(full: float, gradient: float, steps: range) -> str:
    """Return the chosen kinds of save as first letters, one for each number of steps since the last save."""
    tensors = Tensors(int(full * PARAMETERS), int(gradient * PARAMETERS))
    return "".join(choose(tensors, ChainPosition(count, count, 0), FAST).kind[0] for count in steps)


@pytest.mark.parametrize(
    "what, full, gradient, most",
    [
        # In the next four cases a full save is the best lossless difference between states ten steps apart:
        # 8.9 bytes per parameter.
        ("fp32, dense", 8.9, 3.36, 2),
        ("fp32, sparse embedding", 8.9, 2.76, 3),
        ("bf16, dense", 8.9, 1.36, 6),
        ("bf16, sparse embedding", 8.9, 1.11, 8),
        # In the next two cases a full save is uncompressed: a value and two moments per parameter in fp32.
        ("fp32, raw", 12, 4, 2),
        ("bf16 gradients of fp32, raw", 12, 2, 5),
        ("bf16 with fp32 master and moments, raw", 14, 2, 6),
        ("SGD without momentum: the gradients are as large as the state", 4, 4, 0),
        ("an embedding of which 3.4 % of the rows are used", 12, 0.14, 50),
    ],
)
def test_the_journal_is_chosen_up_to_the_break_even_point(
    what: str, full: float, gradient: float, most: int
) -> None:
    assert choices(full, gradient, range(1, 60)) == "j" * most + "f" * (59 - most)


def test_unchanged_tensors_are_not_written() -> None:
    assert choose(Tensors(100, 1, changed=False), ChainPosition(1, 1, 0), FAST).kind == "unchanged"
    assert choose(Tensors(100, 1, False, "no optimizer"), ChainPosition(1, 1, 0), FAST).kind == "unchanged"


def test_tensors_the_journal_rejects_are_written_in_full_with_a_reason() -> None:
    found = choose(Tensors(100, 1, refused="Muon"), ChainPosition(1, 1, 0), FAST)
    assert (found.kind, found.reason) == ("full", "Muon")


@pytest.mark.parametrize(
    "step, read, base, gradient, most",
    [
        (1e-6, 1e12, 10**12, 1, MAX_STEPS),
        (0.1, 1e9, 10**9, 0, 9),  # Replaying 10 steps of 0.1 s takes as long as reading the full save: 1 s.
        (0.1, 1e9, 10**9 + 10**8, 0, 10),
        (0.0, 1e9, 12 * 10**9, 4 * 10**9, 2),
        (0.5, 1e9, 12 * 10**9, 10**9, 7),
        (20.0, 1e9, 12 * 10**9, 1, 0),
        (0.0, 1e9, 10**9, 0, MAX_STEPS),
    ],
)
def test_the_replay_time_limits_the_chain_length(
    step: float, read: float, base: int, gradient: int, most: int
) -> None:
    times = RestoreTimes(step, read, base)
    assert max_chain_steps(gradient, times) == most
    tensors = Tensors(base, gradient)
    if most:
        assert choose(tensors, ChainPosition(1, most, (most - 1) * gradient), times).kind == "journal"
    assert choose(tensors, ChainPosition(1, most + 1, most * gradient), times).kind == "full"


def test_existing_segments_count_towards_the_chain_length() -> None:
    times = RestoreTimes(step=0.1, read=1e9, base=10**9)
    tensors = Tensors(10**9, 10**6)
    assert choose(tensors, ChainPosition(1, 5, 0), times).kind == "journal"
    found = choose(tensors, ChainPosition(1, 5, 6 * 10**8), times)
    assert found.kind == "full" and "adds 1.1 s" in found.reason
