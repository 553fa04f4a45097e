"""Tests of a gang whose steps change their length."""

from __future__ import annotations

import pytest

from convoy_controllers.simulate.gang import Gang
from convoy_controllers.simulate.program import Program


def stepping() -> Gang:
    """Return a gang that has made steps of 2 s since second 100."""
    gang = Gang("train", "uid", 1, 1, Program(step_seconds=2.0))
    gang.first_step = 100.0
    gang.start(100.0, 0, 2.0)
    return gang


def test_an_unfinished_step_keeps_its_share_when_steps_become_longer() -> None:
    gang = stepping()
    gang.change_length(105.0, 10.0)  # the third step is half done, and needs 5 s more
    assert (gang.at(105.0), gang.at(109.0)) == ((2, 104.0), (2, 104.0))
    assert gang.at(110.0) == (3, 110.0)
    assert gang.when(5) == pytest.approx(130.0)


def test_steps_that_become_shorter_again_lose_nothing() -> None:
    gang = stepping()
    gang.change_length(105.0, 10.0)
    gang.change_length(115.0, 2.0)  # the fourth step is half done
    assert gang.at(115.0) == (3, 110.0)
    assert gang.at(116.0) == (4, 116.0)
    assert gang.at(103.0) == (1, 102.0)
