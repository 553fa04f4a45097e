"""Tests of the residuals of a rank's times, with the effects of stage, hardware and work removed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_controllers.guard.cells import Cells, within_cells
from convoy_controllers.guard.loss import Shape, shares
from convoy_controllers.guard.residuals import against_peers, with_tokens
from convoy_controllers.guard.telemetry import Floats, Layout


def grid(stages: int, replicas: int) -> Layout:
    stage, replica = np.divmod(np.arange(stages * replicas), replicas)
    return Layout.of(stage.tolist(), replica.tolist())


def uneven(stages: int, replicas: int, micro: int, seed: int, sigma: float = 0.003) -> Floats:
    """Return micro-batch times with uneven work. Each stage reacts differently to the work."""
    rng = np.random.default_rng(seed)
    load = np.exp(rng.normal(0, 0.25, (replicas, micro)))
    share = np.linspace(0.1, 0.5, stages)[:, None, None]
    times = ((1 - share) * load + share * load**2) * np.linspace(1, 1.5, stages)[:, None, None]
    times = np.concatenate([times, 2 * times], axis=2) * np.exp(
        rng.normal(0, sigma, (stages, replicas, 2 * micro))
    )
    return times.reshape(stages * replicas, 2 * micro)


def test_rank_is_compared_with_its_own_group() -> None:
    found = against_peers(np.array([1.0, 1.0, 2.0, 5.0, 5.0, np.nan]), np.array([0, 0, 0, 1, 1, 1]))
    np.testing.assert_allclose(found.residual, [-np.log(2) / 2, -np.log(2) / 2, np.log(2), 0, 0, np.nan])
    assert found.known.tolist() == [3, 3, 3, 2, 2, 2]


@pytest.mark.parametrize(("stages", "replicas"), [(2, 32), (3, 8), (4, 8), (5, 8), (8, 16), (12, 8)])
def test_residuals_remove_work_and_keep_slowness(stages: int, replicas: int) -> None:
    layout = grid(stages, replicas)
    cells = Cells.of(layout)
    assert cells is not None
    micro = uneven(stages, replicas, 8, 1)
    slow = replicas + 3
    micro[slow] *= 1.1
    residual = within_cells(micro, cells)
    plain = against_peers(micro.sum(axis=1), layout.peers).residual
    assert residual[slow] == pytest.approx(np.log(1.1), abs=0.03)
    same_column = np.arange(3, layout.size, replicas)
    others = np.setdiff1d(np.arange(layout.size), same_column)
    assert np.abs(residual[others]).max() < 0.03 < np.abs(plain[others]).max()
    # A slow rank makes the other ranks of its replica look fast, but no rank may look slow because of it.
    assert residual[np.setdiff1d(same_column, slow)].max() < 0.03


def test_stages_may_have_different_numbers_of_ranks() -> None:
    """Run stage 1 on two ranks of each replica. Each stage reacts differently to the work."""
    layout = Layout.of([0] * 8 + [1] * 16 + [2] * 8, [*range(8)] * 4)
    cells = Cells.of(layout)
    assert cells is not None
    micro = uneven(3, 8, 8, 4)[[*range(16), *range(8, 24)]].copy()
    micro[19] *= 1.1
    residual = within_cells(micro, cells)
    assert residual[19] == pytest.approx(np.log(1.1), abs=0.03)
    assert np.abs(np.delete(residual, [3, 11, 19, 27])).max() < 0.03


def test_silent_ranks_do_not_shift_other_residuals() -> None:
    layout = grid(4, 8)
    cells = Cells.of(layout)
    assert cells is not None
    micro = uneven(4, 8, 8, 2)
    whole = within_cells(micro, cells)
    micro[[3, 17]] = np.nan
    part = within_cells(micro, cells)
    assert np.isnan(part[[3, 17]]).all()
    reporting = np.setdiff1d(np.arange(32), [3, 17, 11, 19, 27, 1, 9, 25])
    np.testing.assert_allclose(part[reporting], whole[reporting], atol=0.01)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.floats(0.2, 5))
def test_residuals_do_not_depend_on_the_unit(seed: int, factor: float) -> None:
    cells = Cells.of(grid(3, 6))
    assert cells is not None
    micro = uneven(3, 6, 4, seed)
    np.testing.assert_allclose(within_cells(micro * factor, cells), within_cells(micro, cells), atol=1e-6)


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(grid(1, 8), id="one stage"),
        pytest.param(grid(4, 3), id="too few replicas"),
        pytest.param(Layout.of([0, 0, 1, 1, 0], [0, 1, 0, 1, 0]), id="replicas that differ"),
        pytest.param(
            Layout.of([0] * 8, [0, 0, 1, 1, 2, 2, 3, 3], hardware=[0] * 7 + [1]), id="mixed hardware"
        ),
    ],
)
def test_layout_without_a_grid_has_no_cells(layout: Layout) -> None:
    assert Cells.of(layout) is None


def test_token_counts_explain_compute_time_but_not_slowness() -> None:
    rng = np.random.default_rng(1)
    tokens = np.exp(rng.normal(8, 0.2, 32))
    compute = tokens**1.2 * np.exp(rng.normal(0, 0.003, 32)) * np.where(np.arange(32) == 5, 1.1, 1.0)
    found = with_tokens(compute, tokens, np.zeros(32, dtype=np.int64))
    assert found is not None
    assert found.residual[5] == pytest.approx(np.log(1.1), abs=0.03)
    assert np.abs(np.delete(found.residual, 5)).max() < 0.03
    assert with_tokens(compute, np.full(32, np.nan), np.zeros(32, dtype=np.int64)) is None
    assert with_tokens(compute, np.full(32, 7.0), np.zeros(32, dtype=np.int64)) is None


@pytest.mark.parametrize(
    ("compute", "slow", "named", "stages", "replicas"),
    [
        pytest.param([1, 1, 1, 1, 1, 1, 1, 1], [], 0, 0, 0, id="even"),
        pytest.param([2, 1, 1, 1, 1, 1, 1, 1], [0], 0.5, 0, 0, id="one slow rank"),
        pytest.param([2, 1, 1, 1, 1, 1, 1, 1], [], 0, 0, 0, id="one late rank is nobody's work"),
        pytest.param([1, 1, 1, 1, 3, 3, 3, 3], [], 0, 1 / 3, 0, id="one long stage"),
        pytest.param([1, 1, 1, 2, 1, 1, 1, 2], [], 0, 0, 0.5, id="one long replica"),
    ],
)
def test_shares_estimate_the_time_that_a_fix_would_save(
    compute: list[float], slow: list[int], named: float, stages: float, replicas: float
) -> None:
    layout = grid(2, 4)
    found = shares(
        np.array(compute, dtype=float),
        np.isin(np.arange(8), slow),
        layout.peers,
        Shape.of(layout),
        micro=10**6,
    )
    assert found.named == pytest.approx(named, abs=1e-3)
    assert found.stages == pytest.approx(stages, abs=1e-3)
    assert found.replicas == pytest.approx(replicas, abs=1e-3)


@pytest.mark.parametrize(
    ("healthy", "micro", "delay"),
    [
        pytest.param([1, 1, 1, 1, 1, 1, 1, 1], 10**6, 1.0, id="nobody else"),
        pytest.param(
            [1, 1, 1, 1, 3, 3, 3, 3], 4, 0.25, id="the other stage is longer, but for the first micro-batch"
        ),
        pytest.param([1, 1.5, 1, 1, 1, 1, 1, 1], 10**6, 0.5, id="another replica is nearly as long"),
        pytest.param([1, 2, 1, 1, 1, 1, 1, 1], 10**6, 0.0, id="another replica is as long"),
    ],
)
def test_cost_of_one_slow_rank(healthy: list[float], micro: int, delay: float) -> None:
    """Rank 0 takes 2 s instead of the 1 s of a healthy rank. Its delay is the time that it adds to the
    step: none if another rank is just as slow.
    """
    base = np.array(healthy, dtype=float)
    compute = np.where(np.arange(8) == 0, 2.0, base)
    found = Shape.of(grid(2, 4)).delays(base, compute, micro)
    assert found[0] == pytest.approx(delay, abs=1e-3)
    np.testing.assert_allclose(found[1:], 0.0, atol=1e-3)


def test_a_step_is_as_long_as_its_slowest_pipeline() -> None:
    """Run two stages of 4 s and 8 s in 4 micro-batches. A step takes 1 s to fill the pipeline, then 2 s per
    micro-batch.
    """
    shape = Shape.of(grid(2, 4))
    np.testing.assert_allclose(shape.step(np.array([4.0] * 4 + [8.0] * 4), 4), [9.0] * 4)
