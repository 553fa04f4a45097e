"""The indexes that the bench compares: aperon and its published peers, each with one thread."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.settings import IndexSettings, Options, SearchSettings
from convoy_workloads.kernels.hntl_arrays import Floats

REQUIREMENTS = ("hnswlib==0.8.0", "faiss-cpu==1.15.1")
"""Requirements of pip, without their dependencies. hnswlib is source, so it needs a C++ compiler."""
Ids = npt.NDArray[np.int64]
_EF_CONSTRUCTION = 200
_EFS = (10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 45, 50, 55, 60, 65, 70, 80, 90, 100, 120, 140, 160, 200, 240,
        320, 480, 640, 960)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Built:
    """An index that holds vectors with the ids 0, 1, and so on."""

    search: Callable[[Floats, int, Any], Ids]
    """Returns the ids of the nearest vectors, for queries, a number of results, and a setting."""
    add: Callable[[Floats, Ids], None]
    """Adds or replaces vectors."""
    bytes: int
    """Bytes of the index, vectors among them."""
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Arm:
    """A kind of index."""

    name: str
    build: Callable[[Floats], Built]
    settings: Sequence[Any]
    """Settings of a search, from which the bench takes the fastest that reaches a recall."""


def available() -> bool:
    """Return True if the peers can be imported."""
    return all(importlib.util.find_spec(name) for name in ("hnswlib", "faiss"))


def arms() -> list[Arm]:
    """Return aperon, and the peers."""
    grid = [SearchSettings(nprobe, candidates) for nprobe in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24)
            for candidates in (15, 20, 25, 30, 35, 40, 50, 60, 70, 100, 150)]  # fmt: skip
    factors = [(nprobe, factor) for nprobe in (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)
               for factor in (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20)]  # fmt: skip
    return [
        Arm("aperon", aperon, grid),
        Arm("hnswlib, M 16", lambda vectors: hnswlib(vectors, 16), _EFS),
        Arm("hnswlib, M 32", lambda vectors: hnswlib(vectors, 32), _EFS),
        Arm("faiss HNSW, M 32", lambda vectors: faiss_hnsw(vectors, 32), _EFS),
        Arm("faiss PCA96, IVF SQ8, refined", pca_ivf, factors),
    ]


def aperon(vectors: Floats) -> Built:
    """Build this engine's index in a temporary folder."""
    folder = tempfile.TemporaryDirectory()
    settings = IndexSettings(vectors.shape[1], id_type="uint64")
    rows = (list(range(len(vectors))), vectors, None)
    index = VectorIndex.create(Path(folder.name), settings, rows=rows, options=Options(fsync="never"))

    def search(queries: Floats, results: int, chosen: SearchSettings) -> Ids:
        return np.array(index.search(queries, results, settings=chosen).ids, np.int64)

    def add(more: Floats, ids: Ids) -> None:
        index.upsert(ids.tolist(), more)
        index.maintain()

    def close() -> None:
        index.close()
        folder.cleanup()

    return Built(search, add, sum(index.sizes().values()), close)


def hnswlib(vectors: Floats, links: int) -> Built:
    """Build a graph of hnswlib."""
    index = importlib.import_module("hnswlib").Index(space="l2", dim=vectors.shape[1])
    index.init_index(2 * len(vectors), ef_construction=_EF_CONSTRUCTION, M=links, random_seed=0)
    index.add_items(vectors, np.arange(len(vectors)), num_threads=1)

    def search(queries: Floats, results: int, ef: int) -> Ids:
        index.set_ef(max(ef, results))
        return np.asarray(index.knn_query(queries, k=results, num_threads=1)[0], np.int64)

    with tempfile.NamedTemporaryFile() as file:
        index.save_index(file.name)
        size = Path(file.name).stat().st_size
    return Built(search, lambda more, ids: index.add_items(more, ids, num_threads=1), size)


def faiss_hnsw(vectors: Floats, links: int) -> Built:
    """Build a graph of faiss."""
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(vectors.shape[1], links)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    index.add(vectors)

    def search(queries: Floats, results: int, ef: int) -> Ids:
        index.hnsw.efSearch = max(ef, results)
        return np.asarray(index.search(queries, results)[1], np.int64)

    return Built(search, lambda more, _: index.add(more), len(faiss.serialize_index(index)))


def pca_ivf(vectors: Floats) -> Built:
    """Build 8-bit codes of 96 global principal coordinates in inverted lists, with exact distances at the
    end.
    """
    faiss = _faiss()
    dimension, coordinates = vectors.shape[1], min(96, vectors.shape[1])
    lists = max(1, round(len(vectors) / 240))
    quantiser = faiss.IndexFlatL2(coordinates)
    codes = faiss.IndexIVFScalarQuantizer(quantiser, coordinates, lists, faiss.ScalarQuantizer.QT_8bit)
    whole = faiss.IndexPreTransform(faiss.PCAMatrix(dimension, coordinates), codes)
    index = faiss.IndexRefineFlat(whole)
    index.train(vectors)
    index.add(vectors)

    def search(queries: Floats, results: int, setting: tuple[int, int]) -> Ids:
        codes.nprobe, index.k_factor = setting
        return np.asarray(index.search(queries, results)[1], np.int64)

    # The closure keeps `quantiser` and `whole`, which faiss does not own.
    kept = (quantiser, whole)
    return Built(
        search, lambda more, _: index.add(more), len(faiss.serialize_index(index)), lambda: kept and None
    )


def _faiss() -> Any:
    found = importlib.import_module("faiss")
    found.omp_set_num_threads(1)
    return found
