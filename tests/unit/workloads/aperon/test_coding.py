"""Tests of models and codes: grains, the score's error bound, determinism, and models that are kept."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.workloads.aperon.aperon_index import clustered
from threadpoolctl import threadpool_limits

from convoy_workloads.engines.aperon import blas, coding
from convoy_workloads.engines.aperon.grains import fit_centres, nearest_centres
from convoy_workloads.engines.aperon.model import fit_model
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.kernels.hntl_arrays import UNIT


@pytest.mark.parametrize("dimension", [5, 64, 90])
def test_each_row_is_in_one_grain(dimension: int) -> None:
    vectors = clustered(700, dimension)
    coded = coding.code(vectors, IndexSettings(dimension, grains=6))
    assert sorted(coded.rows.tolist()) == list(range(700))
    order = np.arange(700, dtype=np.uint32)
    arrays = coding.arranged(coded, IndexSettings(dimension, grains=6), vectors[coded.rows], order)
    assert arrays.starts[-1] == 700 and arrays.grains == 6 and (np.diff(arrays.starts) > 0).all()


@pytest.mark.parametrize("dimension", [20, 100])
def test_scores_stay_within_their_error_bound(dimension: int) -> None:
    """The score differs from the squared distance by at most 2 |r_q| |r_x|, where r is the part of a vector
    outside of its grain's basis, plus the rounding of the codes.
    """
    vectors, queries = clustered(400, dimension), clustered(30, dimension, seed=9)
    coded = coding.code(vectors, IndexSettings(dimension, grains=4, dims=8))
    model = coded.model
    frame = model.frame
    axes = np.eye(dimension, frame.coordinates) if frame.axes is None else frame.axes.astype(float) / UNIT
    for grain in range(4):
        own = coded.labels == grain
        basis = axes @ (model.bases[grain].astype(float) / UNIT)
        centre = frame.mean + axes @ model.centres[grain].astype(float)
        rows = vectors[coded.rows[own]].astype(float) - centre
        inner_rows = (coded.codes[own].astype(float) - 128) * coded.scales[grain]
        shifted = queries.astype(float) - centre
        inner = shifted @ basis
        biases = coded.biases[own].astype(float)
        score = (shifted**2).sum(1)[:, None] - 2 * inner @ inner_rows.T + biases
        true = ((shifted[:, None] - rows) ** 2).sum(2)
        rest_rows = np.linalg.norm(rows - (rows @ basis) @ basis.T, axis=1)
        rest = np.linalg.norm(shifted - inner @ basis.T, axis=1)
        rounding = np.abs(inner) @ np.full((8, 1), coded.scales[grain])
        slack = 1e-3 * (shifted**2).sum(1)[:, None]
        assert (np.abs(score - true) <= 2 * rest[:, None] * rest_rows + rounding + slack).all()


def test_a_model_depends_on_the_seed_and_not_on_threads() -> None:
    vectors = clustered(1200, 90)
    made = []
    for threads, seed in ((1, 3), (2, 3), (1, 4)):
        with threadpool_limits(threads, user_api="blas"):
            made.append(fit_model(vectors, 90, grains=5, seed=seed)[0])
    assert made[0].bases.tobytes() == made[1].bases.tobytes()
    assert made[0].centres.tobytes() == made[1].centres.tobytes()
    assert made[0].centres.tobytes() != made[2].centres.tobytes()


def test_linear_algebra_is_limited_to_one_thread() -> None:
    from threadpoolctl import threadpool_info

    with threadpool_limits(2, user_api="blas"), blas.one_thread():
        assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {1}


def test_equal_rows_give_a_model_and_zero_codes() -> None:
    vectors = np.full((50, 30), 2.5, np.float32)
    coded = coding.code(vectors, IndexSettings(30, grains=3))
    assert (coded.codes == 128).all() and not coded.scales.any() and coded.residual == 0
    assert not coded.biases.any()


def test_grains_do_not_mix_clusters() -> None:
    rng = np.random.default_rng(0)
    centres = 50 * rng.standard_normal((6, 10))
    owners = np.repeat(np.arange(6), 100)
    rows = (centres[owners] + rng.standard_normal((600, 10))).astype(np.float32)
    labels, _ = nearest_centres(rows, fit_centres(rows, 30, rng))
    assert len({(int(a), int(b)) for a, b in zip(labels, owners, strict=True)}) == len(set(labels.tolist()))


def test_a_cluster_without_rows_gets_one() -> None:
    rows = np.repeat(np.arange(4, dtype=np.float32), 50)[:, None]
    labels, distances = nearest_centres(rows, fit_centres(rows, 4, np.random.default_rng(1)))
    assert len(set(labels.tolist())) == 4 and not distances.any()


def test_the_frame_follows_the_variance_inside_grains() -> None:
    """One large direction between grains does not hide twenty small ones inside of them."""
    rng = np.random.default_rng(0)
    rows = np.zeros((2000, 200), np.float32)
    rows[:, 0] = 1000 * rng.integers(0, 4, 2000)
    rows[:, 1:61] = rng.standard_normal((2000, 60))
    model, _ = fit_model(rows, 200, grains=4)
    assert model.frame.coordinates == 64 and model.dims >= 52


def test_a_model_stays_until_rows_drift() -> None:
    settings = IndexSettings(40, grains=5, dims=8)
    vectors = clustered(1000, 40)
    first = coding.code(vectors, settings)
    assert coding.code(vectors[:900], settings, first.model).model is first.model
    assert coding.code(vectors[:500], settings, first.model).model is not first.model
    drifted = vectors + np.random.default_rng(1).standard_normal(vectors.shape).astype(np.float32)
    assert coding.code(drifted, settings, first.model).model is not first.model
