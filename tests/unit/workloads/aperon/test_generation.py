"""Tests of indexes in checkpoints: their way into a generation and back, and damaged generations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.workloads.aperon.generations import STEP, deliver, tensors_of
from tests.unit.workloads.aperon.served import VECTORS, params

from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.generation import index_files
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.opening import Opened, open_index
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.settings import IndexSettings, Options, SearchSettings
from convoy_workloads.engines.aperon.sharding import owner
from convoy_workloads.serving.group import Group
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.safetensors import write_tensors

IDS = [f"v{at}" for at in range(len(VECTORS))]
FIELDS = {"genre": "keyword", "year": "integer"}
CONTENTS = "extra.aperon.contents"
Tensors = dict[str, torch.Tensor]


def opened(given: Params, path: Path, group: Group | None = None) -> Opened:
    return open_index(given, path, Path(given.state), group or Group(), lambda: None)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The folder of an index with two segments, deleted rows and settings of its own."""
    folder = tmp_path / "built"
    settings = IndexSettings(VECTORS.shape[1], fields=FIELDS)  # type: ignore[arg-type]
    with VectorIndex.create(folder, settings, options=Options("never", kernel="twin")) as index:
        index.upsert(IDS[:25], VECTORS[:25], [{"year": at} for at in range(25)])
        index.flush()
        index.upsert(IDS[25:], VECTORS[25:])
        index.delete(["v1"])
        with pytest.raises(CorruptFile, match="in no segment"):
            index_files(folder)
        index.flush()
        index.set_search_settings(SearchSettings(3, 21))
    return folder


def test_a_replica_has_every_bit_of_the_index_that_a_job_has_saved(built: Path, tmp_path: Path) -> None:
    delivered = deliver(tensors_of(built), tmp_path / "model")
    found = opened(params(tmp_path / "state", dimension=0), delivered)
    with found.index as index, VectorIndex(built, options=Options(kernel="twin")) as original:
        assert {one.name: one.read_bytes() for one in index_files(built)} == {
            one.name: (found.folder / one.name).read_bytes() for one in index_files(built)
        }
        assert index.search_settings == SearchSettings(3, 21)
        ours, theirs = index.search(VECTORS, 5), original.search(VECTORS, 5)
        assert ours.ids == theirs.ids and np.array_equal(ours.distances, theirs.distances)
        assert ours.records() == theirs.records() and len(index) == len(IDS) - 1
        assert (found.facts["step"], found.facts["incarnation"]) == (STEP, 1)
        index.upsert(["new"], VECTORS[:1])
    # The next process of the replica finds its own writes, and knows the generation.
    again = opened(params(tmp_path / "state"), delivered)
    with again.index as index:
        assert len(index) == len(IDS) and again.facts["step"] == STEP


def test_an_export_of_the_generation_is_an_index_too(built: Path, tmp_path: Path) -> None:
    facts = {"generation": json.dumps({"job": "index", "step": 9})}
    (tmp_path / "model").mkdir()
    write_tensors(tmp_path / "model" / "index.safetensors", tensors_of(built), facts)
    found = opened(params(tmp_path / "state"), tmp_path / "model")
    with found.index as index:
        assert len(index) == len(IDS) - 1 and found.facts == {"job": "index", "step": 9}


def test_each_pod_of_a_replica_keeps_its_own_records(built: Path, tmp_path: Path) -> None:
    delivered = deliver(tensors_of(built), tmp_path / "model")
    for rank in (0, 1):
        found = opened(params(tmp_path / "state"), delivered, Group(rank, 2))
        with found.index as index:
            expected = [one for one in IDS if one != "v1" and owner(one, 2) == rank]
            assert sorted(index.ids()) == sorted(expected)


def _changed(tensors: Tensors, name: str) -> Tensors:
    data = tensors[name].clone()
    data[len(data) // 2] ^= 1
    return {**tensors, name: data}


def _listed(tensors: Tensors, change: Callable[[dict[str, object]], None]) -> Tensors:
    body = json.loads(tensors[CONTENTS].numpy().tobytes())
    change(body)
    return {**tensors, CONTENTS: torch.frombuffer(bytearray(json.dumps(body).encode()), dtype=torch.uint8)}


def _segment(tensors: Tensors) -> str:
    return min(one for one in tensors if one.endswith(".seg"))


DAMAGES: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "another engine": (
        lambda _: {"model.embedding.weight": torch.ones(3), "model.head.weight": torch.ones(3)},
        r"no index of vectors \(its tensors: model.embedding.weight, .* the engine aperon-index",
    ),
    "changed segment": (lambda one: _changed(one, _segment(one)), r"segment-\d+.seg has not the digest"),
    "missing segment": (
        lambda one: {name: data for name, data in one.items() if name != _segment(one)},
        r"tensor extra.aperon.files.segment-\d+.seg is missing",
    ),
    "longer segment": (
        lambda one: {**one, _segment(one): torch.cat([one[_segment(one)], one[_segment(one)][:1]])},
        r"segment-\d+.seg has not the digest",
    ),
    "segment of numbers": (lambda one: {**one, _segment(one): torch.ones(4)}, r"type torch.float32"),
    "changed list": (lambda one: {**one, CONTENTS: one[CONTENTS][:-9]}, r"tensor extra.aperon.contents"),
    "list of another format": (lambda one: _listed(one, lambda body: body.update(format=2)), "has format 2"),
    "path out of the folder": (
        lambda one: _listed(one, lambda body: body.update(files={"../x.seg": {"bytes": 1, "sha256": ""}})),
        r"'\.\./x.seg' is no file of an index",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_generation_is_an_error_and_leaves_no_index(
    damage: str, built: Path, tmp_path: Path
) -> None:
    change, words = DAMAGES[damage]
    delivered = deliver(change(tensors_of(built)), tmp_path / "model")
    given = params(tmp_path / "state")
    with pytest.raises(ModelError, match=words):
        opened(given, delivered)
    assert not (tmp_path / "state" / "shard-0-of-1").exists()


def test_a_truncated_shard_and_other_settings_are_errors(built: Path, tmp_path: Path) -> None:
    delivered = deliver(tensors_of(built), tmp_path / "model")
    with pytest.raises(ModelError, match=r'params.index.metric: "ip", but the index of spec.model has "l2"'):
        opened(params(tmp_path / "state", index={"metric": "ip"}), delivered)
    (file,) = (delivered / "shards" / "0").iterdir()
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(ModelError, match="damaged: a tensor lies beyond the end"):
        opened(params(tmp_path / "state"), delivered)
