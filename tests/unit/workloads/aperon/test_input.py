"""Tests of bad input: each is refused with the path of the wrong value, and changes nothing."""

from __future__ import annotations

import base64
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.workloads.aperon.aperon_index import QUICK

from convoy_workloads.engines.aperon import bodies, infer
from convoy_workloads.engines.aperon.errors import InvalidInput, UnknownField
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.settings import IndexSettings, Options, SearchSettings
from convoy_workloads.serving.protocol import Inference

NAN = float("nan")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = IndexSettings(3, metric="cosine", fields={"word": "keyword"})
    with VectorIndex.create(tmp_path_factory.mktemp("index"), settings, options=QUICK) as made:
        yield made


@pytest.mark.parametrize(
    ("ids", "vectors", "records", "error"),
    [
        (["a"], [[1, 2]], None, "vectors[0]: dimension 2 instead of 3"),
        (["a", "b"], [[1, 2, 3], [1, 2]], None, "vectors: vector 1 has dimension 2 instead of 3"),
        (["a"], [[1, NAN, 3]], None, "vectors[0][1]: nan is not finite"),
        (["a"], [[1, 1e13, 3]], None, "vectors[0][1]: 9999999827968.0 is not finite, or larger than 1e+12"),
        (["a", "b"], [[1, 2, 3], [0, 0, 0]], None, "vectors[1]: its norm is zero"),
        (["a"], [[1, 10**400, 3]], None, "vectors: a number is larger than 1e+12"),
        (["a"], ["abc"], None, "vectors: "),
        (["a"], [[[1, 2, 3]]], None, "vectors: 3 dimensions"),
        (["a", "b"], [[1, 2, 3]], None, "vectors: 1 vectors for 2 ids"),
        (["a", "b", "a"], [[1, 2, 3]] * 3, None, 'ids[2]: "a" is also ids[0]: send each id once'),
        ([], [], None, "ids: no ids"),
        ("a", [[1, 2, 3]], None, "ids: not a list of ids"),
        ([7], [[1, 2, 3]], None, "ids[0]: 7 is no string"),
        ([""], [[1, 2, 3]], None, "ids[0]: 0 bytes are not between 1 and 512"),
        (["ä" * 257], [[1, 2, 3]], None, "ids[0]: 514 bytes"),
        (["\ud800"], [[1, 2, 3]], None, "ids[0]: not valid Unicode"),
        (["a"], [[1, 2, 3]], [{"wrd": "x"}], "records[0].wrd: the index has no field 'wrd'"),
        (["a"], [[1, 2, 3]], [{"word": 3}], "records[0].word: 3 is no keyword"),
        (["a"], [[1, 2, 3]], [{}, {}], "records: not a list of 1 records"),
        (["a"], [[1, 2, 3]], ["x"], 'records[0]: "x" is no object with fields'),
    ],
)
def test_wrong_records_are_refused(
    index: VectorIndex, ids: Any, vectors: Any, records: Any, error: str
) -> None:
    before = index.sequence
    with pytest.raises(UnknownField if "no field" in error else InvalidInput, match=re.escape(error)):
        index.upsert(ids, vectors, records)
    assert index.sequence == before


@pytest.mark.parametrize("number", [-1, 2**64, 1.0, True, "1"])
def test_wrong_numbers_as_ids_are_refused(tmp_path: Path, number: Any) -> None:
    settings = IndexSettings(1, id_type="uint64")
    with VectorIndex.create(tmp_path, settings, options=QUICK) as made:
        made.upsert([0, 2**64 - 1], [[1], [2]])
        assert made.search([[2]], 1).ids == [[2**64 - 1]]
        with pytest.raises(InvalidInput, match=re.escape("ids[0]: ")):
            made.upsert([number], [[1]])


@pytest.mark.parametrize(
    ("queries", "options", "error"),
    [
        ([[1, 2]], {}, "queries[0]: dimension 2 instead of 3"),
        ([[0, 0, 0]], {}, "queries[0]: its norm is zero"),
        ([[1, 2, 3]], {"results": 0}, "results: 0 is no whole number from 1 to 10000"),
        ([[1, 2, 3]], {"where": {"wrd": "x"}}, "filter.wrd: the index has no field"),
    ],
)
def test_wrong_searches_are_refused(index: VectorIndex, queries: Any, options: Any, error: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(error)):
        index.search(queries, **options)


@pytest.mark.parametrize(("vectors", "refused"), [(False, False), (True, True)])
def test_the_vectors_of_a_response_are_bounded(vectors: bool, refused: bool) -> None:
    zeros = base64.b64encode(bytes(2 * 4 * 768)).decode()
    body = bodies.SearchBody(queries=zeros, k=10_000, include_vectors=vectors)
    with pytest.raises(InvalidInput, match="include_vectors: 20000 results") if refused else nullcontext():
        bodies.search(body, IndexSettings(768), 10, 100)


@pytest.mark.parametrize(("vectors", "refused"), [(False, False), (True, True)])
def test_the_vectors_of_records_that_are_read_are_bounded(vectors: bool, refused: bool) -> None:
    body = bodies.GetBody(ids=[f"v{at}" for at in range(600)], include_vectors=vectors)
    error = "include_vectors: 600 records of dimension 16384 are more than 8388608 numbers"
    with pytest.raises(InvalidInput, match=error) if refused else nullcontext():
        assert bodies.get(body, IndexSettings(16_384), 1000) == body.ids


def test_the_results_of_a_search_are_bounded() -> None:
    body = bodies.SearchBody(queries=[[1.0, 2.0, 3.0]] * 21, k=10_000)
    with pytest.raises(InvalidInput, match="k: 21 queries with 10000 results each are more than"):
        bodies.search(body, IndexSettings(3), 10, 100)


def test_the_results_of_an_inference_are_bounded() -> None:
    inference = Inference(1, "aperon", {"queries": np.zeros((21, 3), np.float32)}, ("ids",), 21)
    assert infer.search_of(inference, IndexSettings(3), 9000).rows == 21
    with pytest.raises(InvalidInput, match="queries: 21 queries with 10000 results each are more than"):
        infer.search_of(inference, IndexSettings(3), 10_000)


def test_a_field_that_is_null_counts_as_absent() -> None:
    found = bodies.parse(bodies.GetBody, b'{"ids": [1], "include_metadata": null, "include_vectors": null}')
    assert (found.include_metadata, found.include_vectors) == (True, False)


def test_deletes_need_ids_or_a_filter(index: VectorIndex) -> None:
    with pytest.raises(InvalidInput, match="give either ids or a filter"):
        index.delete()
    with pytest.raises(InvalidInput, match=r"filter\.wrd"):
        index.delete(where={"wrd": 1})
    assert index.delete(["not there"]).changed == 0


@pytest.mark.parametrize(
    ("kind", "values", "error"),
    [
        (IndexSettings, {"dimension": 0}, "dimension: 0 is no whole number from 1 to 16384"),
        (IndexSettings, {"dimension": 2, "metric": "l1"}, 'metric: "l1" is not one of: l2, ip, cosine'),
        (IndexSettings, {"dimension": 2, "dims": 6}, "dims: 6 is no multiple of 4"),
        (IndexSettings, {"dimension": 2, "fields": {"$x": "float"}}, "fields.$x: the name does not match"),
        (IndexSettings, {"dimension": 2, "fields": {"x": "date"}}, 'fields.x: "date" is not one of'),
        (SearchSettings, {"nprobe": 0}, "nprobe: 0"),
        (SearchSettings, {"candidates": True}, "candidates: true"),
        (Options, {"fsync": "sometimes"}, 'fsync: "sometimes"'),
        (Options, {"most_deleted": 0}, "most_deleted: 0"),
    ],
)
def test_wrong_settings_are_refused(kind: Any, values: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(error)):
        kind(**values)
