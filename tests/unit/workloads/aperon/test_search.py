"""Tests of searches: equality with brute force, order of ties, recall, metrics and filtered searches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.workloads.aperon.aperon_index import QUICK, clustered, made

from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.recall import recalls
from convoy_workloads.engines.aperon.settings import IndexSettings, Metric, SearchSettings

ALL = SearchSettings(nprobe=10_000, candidates=100_000)


def true_distances(metric: Metric, queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    queries, vectors = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "ip":
        return np.asarray(-queries @ vectors.T)
    if metric == "cosine":
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(1 - queries @ vectors.T)
    return np.asarray(((queries[:, None] - vectors) ** 2).sum(axis=2))


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("dimension", [1, 24, 70])
def test_full_probe_equals_brute_force(tmp_path: Path, metric: Metric, dimension: int) -> None:
    vectors = clustered(600, dimension)
    queries = clustered(20, dimension, seed=1)
    with made(tmp_path, vectors, metric=metric, grains=7, id_type="uint64") as index:
        found = index.search(queries, 10, settings=ALL)
        exact = index.search(queries, 10, exact=True)
        assert found.ids == exact.ids
        assert found.distances.tobytes() == exact.distances.tobytes()
        true = true_distances(metric, queries, vectors)
        own = np.take_along_axis(true, np.array(found.ids, np.int64), axis=1)
        np.testing.assert_allclose(found.distances, own, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(own, np.sort(true, axis=1)[:, :10], rtol=1e-4, atol=1e-4)
        assert (found.scanned == 600).all()


def test_ties_are_in_the_order_of_ids_also_between_segments_and_memory(tmp_path: Path) -> None:
    with VectorIndex.create(tmp_path, IndexSettings(2), options=QUICK) as index:
        ids = [f"{number:03}" for number in range(90)]
        rng = np.random.default_rng(3)
        for part in np.array_split(rng.permutation(90), 3):
            index.upsert([ids[at] for at in part], np.ones((30, 2)))
            if len(index) < 90:
                index.flush()
        for settings in (ALL, SearchSettings(1, 1)):
            assert index.search([[0, 0]], 40, settings=settings).ids == [ids[:40]]


def test_recall_never_falls_with_more_grains_or_candidates(tmp_path: Path) -> None:
    vectors, queries = clustered(3000, 40), clustered(60, 40, seed=5)
    with made(tmp_path, vectors, grains=20, dims=8) as index:
        exact = index.search(queries, 10, exact=True)
        table = np.array(
            [
                [
                    recalls(index.search(queries, 10, settings=SearchSettings(probes, count)), exact).mean()
                    for count in (10, 20, 50, 3000)
                ]
                for probes in (1, 2, 4, 8, 20)
            ]
        )
        assert (np.diff(table, axis=1) >= 0).all()
        assert (np.diff(table[:, -1]) >= 0).all()
        assert table[0, 0] < 0.9 and table[-1, -1] == 1
        assert table[-1, 1] > 0.9


def test_a_search_finds_as_many_records_as_there_are(tmp_path: Path) -> None:
    vectors = clustered(500, 12)
    with made(tmp_path, vectors, grains=25) as index:
        found = index.search(vectors[:3], 400, settings=SearchSettings(1, 1))
        assert [len(one) for one in found.ids] == [400] * 3
        index.delete(index.ids()[:495])
        found = index.search(vectors[:1], 10, settings=SearchSettings(1, 1))
        assert sorted(map(str, found.ids[0])) == sorted(map(str, index.ids()))
        assert np.isinf(found.distances[0, 5:]).all()
        index.delete(index.ids())
        assert index.search(vectors[:2], 3).ids == [[], []] and len(index) == 0


def test_filters_apply_inside_the_scan(tmp_path: Path) -> None:
    vectors = clustered(2000, 16)
    settings = IndexSettings(16, fields={"parity": "integer", "rare": "boolean"}, id_type="uint64", grains=10)
    records = [{"parity": number % 2, "rare": number % 500 == 0} for number in range(2000)]
    rows = (list(range(2000)), vectors, records)
    with VectorIndex.create(tmp_path, settings, rows=rows, options=QUICK) as index:
        odd = index.search(vectors[:50], 5, where={"parity": 1})
        assert all(int(one) % 2 for ids in odd.ids for one in ids)
        assert [ids[0] for ids in odd.ids[1::2]] == list(range(1, 50, 2))
        rare = index.search(vectors[:2], 10, where={"rare": True})
        assert [sorted(map(int, ids)) for ids in rare.ids] == [[0, 500, 1000, 1500]] * 2
        assert rare.records()[0] == [{"parity": 0, "rare": True}] * 4
        assert index.delete(where={"parity": 0}).changed == 1000
        assert index.search(vectors[:2], 10, where={"rare": True}).ids == [[], []]


def test_a_filter_does_not_lower_the_recall(tmp_path: Path) -> None:
    vectors, queries = clustered(3000, 24), clustered(50, 24, seed=8)
    settings = IndexSettings(24, fields={"tenth": "integer"}, id_type="uint64", grains=30, dims=8)
    rows = (list(range(3000)), vectors, [{"tenth": int(one)} for one in np.arange(3000) % 10])
    options = type(QUICK)(fsync="never", exact_rows=0)
    with VectorIndex.create(tmp_path, settings, rows=rows, options=options) as index:
        search = SearchSettings(3, 40)
        whole = recalls(index.search(queries, 5, settings=search), index.search(queries, 5, exact=True))
        where = {"tenth": 3}
        for _ in range(2):
            found = index.search(queries, 5, settings=search, where=where)
            exact = index.search(queries, 5, exact=True, where=where)
            assert recalls(found, exact).mean() >= whole.mean() > 0.5
            assert all(int(one) % 10 == 3 for ids in found.ids for one in ids)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_the_batch_or_on_threads(tmp_path: Path, threads: int) -> None:
    vectors, queries = clustered(1500, 33), clustered(70, 33, seed=2)
    options = type(QUICK)(fsync="never", threads=threads)
    with made(tmp_path, vectors, grains=9, options=options) as index:
        whole = index.search(queries, 8)
        for at in range(0, 70, 23):
            part = index.search(queries[at : at + 23], 8)
            assert part.ids == whole.ids[at : at + 23]
            assert part.distances.tobytes() == whole.distances[at : at + 23].tobytes()
