"""Tests of builds: their sources, the settings of searches, and wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from convoy_workloads.engines.aperon.generation import index_files
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.settings import Options, SearchSettings
from convoy_workloads.engines.aperon_index import build as building
from convoy_workloads.engines.aperon_index import source, synthetic
from convoy_workloads.engines.aperon_index.build import Built, build, sample
from convoy_workloads.engines.aperon_index.params import Params
from convoy_workloads.engines.aperon_index.source import SourceError

VECTORS = np.random.default_rng(3).standard_normal((60, 6)).astype(np.float32)
FIELDS = {"year": "integer", "genre": "keyword"}
RECORDS = [{"year": at, "genre": "drama"} if at % 2 else {} for at in range(len(VECTORS))]


def params(**more: Any) -> Params:
    return Params.model_validate({"kernel": "twin", "index": {"target_recall": 0}, **more})


def opened(built: Built) -> VectorIndex:
    return VectorIndex(built.folder, options=Options("never", kernel="twin"))


def built(folder: Path, given: Params, generation: int = 1) -> Built:
    return build(given, generation, folder / "built", lambda _: None)


def write(folder: Path, **more: Any) -> Path:
    """Write the files of a source. `more`: the content of a file by its name with `_` instead of a dot; None
    to leave it out.
    """
    files: dict[str, Any] = {
        "vectors_npy": VECTORS,
        "ids_txt": "".join(f"id {at}\n" for at in range(len(VECTORS))),
        "metadata_jsonl": "".join(json.dumps(one) + "\n" for one in RECORDS),
        **more,
    }
    for name, content in files.items():
        file = folder / name.replace("_", ".")
        if isinstance(content, np.ndarray):
            np.save(file, content)
        elif content is not None:
            file.write_text(content)
    return folder


def test_files_become_an_index_of_several_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_BATCH_ROWS", 7)
    given = params(vectors={"folder": str(write(tmp_path))}, fields=FIELDS, segment_rows=1000)
    given.segment_rows = 20
    counts: list[int] = []
    made = build(given, 1, tmp_path / "built", counts.append)
    assert counts == [*range(7, 57, 7), 60] and made.records == 60 and made.recall is None
    with opened(made) as index:
        assert [one.live for one in index.snapshot().state.segments] == [21, 21, 18]
        found = index.search(VECTORS, 1, exact=True)
        assert [row[0] for row in found.ids] == [f"id {at}" for at in range(60)]
        assert [row[0] for row in found.records()] == RECORDS
    assert sum(one.suffix == ".seg" for one in index_files(made.folder)) == 3


@pytest.mark.parametrize("ids", ["ids.npy", "ids.txt", "none"])
@pytest.mark.parametrize("kind", ["uint64", "string"])
def test_ids_come_from_a_text_an_array_or_the_numbers_of_rows(ids: str, kind: str, tmp_path: Path) -> None:
    numbers = np.arange(60, dtype=np.uint64) + (0 if ids == "none" else 2**63)
    array = numbers if kind == "uint64" else numbers.astype(str)
    text = "".join(f"{one}\r\n" for one in numbers)
    given = {"ids.npy": {"ids_npy": array, "ids_txt": None}, "ids.txt": {"ids_txt": text}}
    folder = write(tmp_path, metadata_jsonl=None, **given.get(ids, {"ids_txt": None}))
    with opened(built(tmp_path, params(vectors={"folder": str(folder)}, id_type=kind))) as index:
        expected = numbers.tolist() if kind == "uint64" else [str(one) for one in numbers]
        assert sorted(index.ids(), key=str) == sorted(expected, key=str)


FILES: dict[str, tuple[dict[str, Any], str]] = {
    "no vectors": ({"vectors_npy": None}, r"vectors.npy: No such file"),
    "not an array": ({"vectors_npy": "x"}, r"vectors.npy: "),
    "one dimension": ({"vectors_npy": VECTORS[0]}, r"shape \[6\], expected \[vectors, components\]"),
    "no rows": ({"vectors_npy": VECTORS[:0]}, r"shape \[0, 6\]"),
    "other byte order": ({"vectors_npy": VECTORS.astype(">f4")}, r"type >f4, expected <f4"),
    "float64": ({"vectors_npy": VECTORS.astype(np.float64)}, r"type <f8, expected <f4"),
    "objects": ({"vectors_npy": np.array([[{}]], dtype=object)}, r"Python objects in dtype"),
    "not finite": (
        {"vectors_npy": np.where(np.arange(60)[:, None] == 15, np.nan, VECTORS).astype(np.float32)},
        r"rows 14 to 20 of the source: vectors\[1\]\[0\]: nan is not finite",
    ),
    "two ids": ({"ids_npy": np.arange(60).astype(str)}, r"ids.txt and ids.npy: delete one"),
    "few ids": ({"ids_txt": "a\nb\n"}, r"ids.txt has 2 lines, and vectors.npy has 60 rows"),
    "many ids": (
        {"ids_txt": "".join(f"id {at}\n" for at in range(61))},
        r"ids.txt has more lines than vectors.npy has rows, 60",
    ),
    "the same id in other rows": (
        {"ids_txt": "".join(f"id {at % 50}\n" for at in range(60))},
        r'rows 49 to 55 of the source: id "id 0" is in earlier rows, too',
    ),
    "the same id in near rows": (
        {"ids_txt": "".join(f"id {at - at % 2}\n" for at in range(60))},
        r'rows 0 to 6 of the source: ids\[1\]: "id 0" is also ids\[0\]',
    ),
    "empty id": ({"ids_txt": "\n" * 60}, r"ids\[0\]: 0 bytes"),
    "array of other ids": (
        {"ids_txt": None, "ids_npy": np.arange(60)},
        r"ids.npy: shape \[60\] and type <i8",
    ),
    "metadata without JSON": ({"metadata_jsonl": "{}\n{\n" * 30}, r"metadata.jsonl, line 2: not valid JSON"),
    "metadata of numbers": (
        {"metadata_jsonl": "{}\n3\n" * 30},
        r"metadata.jsonl, line 2: must be a JSON object",
    ),
    "metadata of another type": (
        {"metadata_jsonl": '{"year": "x"}\n' * 60},
        r'rows 0 to 6 of the source: records\[0\].year: "x" is no integer',
    ),
    "unknown field": (
        {"metadata_jsonl": '{"colour": 1}\n' * 60},
        r"records\[0\].colour: the index has no field",
    ),
    "long line": ({"metadata_jsonl": " " * 2000 + "\n"}, r"line 1: longer than 1000 bytes"),
}


@pytest.mark.parametrize("case", FILES)
def test_wrong_files_are_named(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_BATCH_ROWS", 7)
    monkeypatch.setattr("convoy_workloads.engines.aperon_index.vector_files._LONGEST_LINE", 1000)
    content, words = FILES[case]
    given = params(vectors={"folder": str(write(tmp_path, **content))}, fields=FIELDS)
    with pytest.raises(SourceError, match=words):
        built(tmp_path, given)


def test_parameters_that_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = str(write(tmp_path))
    with pytest.raises(SourceError, match=r"dimension: 7, but .*vectors.npy has vectors of dimension 6"):
        built(tmp_path, params(vectors={"folder": folder}, dimension=7))
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "none is set"),
        ({"vectors": {"folder": "/x"}, "synthetic": {}}, "vectors and synthetic are set"),
        ({"service": {"url": "http://a:1/path"}}, "url"),
        ({"service": {"url": "http://a:x"}}, "url"),
        ({"service": {"url": "ftp://a"}}, "url"),
        ({"service": {"url": "http://user@a"}}, "url"),
    ]
    for body, words in refused:
        with pytest.raises(ValidationError, match=words):
            Params.model_validate(body)


def test_random_rows_are_the_same_in_all_generations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_BATCH_ROWS", 16)
    given = params(synthetic={"rows": 50, "growth": 7, "dimension": 4})
    assert given.synthetic is not None
    first, third = (
        np.concatenate([one.vectors for one in synthetic.read(given, given.synthetic, generation).batches])
        for generation in (1, 3)
    )
    assert len(first) == 50 and len(third) == 64 and np.array_equal(first, third[:50])
    with opened(built(tmp_path, given, 2)) as index:
        assert len(index) == 57


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_the_search_is_tuned_to_its_recall_on_records_without_themselves(metric: str, tmp_path: Path) -> None:
    given = params(
        synthetic={"rows": 1500, "dimension": 24},
        index={"metric": metric, "target_recall": 0.9, "grains": 30, "nprobe": 1, "candidates": 10},
    )
    made = built(tmp_path, given)
    with opened(made) as index:
        assert index.search_settings != SearchSettings(1, 10)
        queries, own = sample(index, 200), 0 if metric == "ip" else 1
        exact, found = (index.search(queries, 10 + own, exact=one) for one in (True, False))
        shares = [
            len(set(true[own:]) & set(ids)) / 10 for true, ids in zip(exact.ids, found.ids, strict=True)
        ]
        assert made.recall == pytest.approx(np.mean(shares), abs=0.02)
        assert 0.88 <= made.recall <= 1


def test_a_target_out_of_reach_keeps_the_settings_of_the_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = {"target_recall": 1.0, "nprobe": 2, "candidates": 12}
    tune: Callable[..., Any] = building.tune
    monkeypatch.setattr(
        building,
        "tune",
        lambda *given, **more: tune(*given, **more, most=SearchSettings(1, 10)),
    )
    made = built(tmp_path, params(synthetic={"rows": 1500, "dimension": 24}, index={**index, "grains": 30}))
    assert made.recall is None and "target_recall 1 is out of reach" in capsys.readouterr().err
    with opened(made) as one:
        assert one.search_settings == SearchSettings(2, 12)
